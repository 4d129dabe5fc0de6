#include "trace/base/not_seen.h"

#include <ttrace/error.h>

#include <algorithm>

namespace ttrace {

NotSeenKind parse_not_seen_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kNotSeenKinds, name);
  if (found == kNotSeenKinds.end()) {
    std::string all;
    for (const std::string_view kind : kNotSeenKinds) {
      all.append(all.empty() ? "" : ", ").append(kind);
    }
    TTRACE_THROW(UsageError, "'", name, "' is no kind of what was not seen; the kinds are ", all);
  }
  return static_cast<NotSeenKind>(found - kNotSeenKinds.begin());
}

}  // namespace ttrace
