// What nobody looked at, so that the verdict does not cover it, as a report says it.
//
// Thread-safety: plain values, and a free function without shared state.
#pragma once

#include "analysis/findings/names.h"
#include "trace/base/not_seen.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct UnseenPart {
  NotSeenKind kind = NotSeenKind::kUpdates;
  std::optional<Names> side = {};  // nothing: both
  std::string sentence;
};

// "reference", "candidate" or "both"
[[nodiscard]] std::string_view side_of(const UnseenPart& part);
// "updates (candidate): SENTENCE"
[[nodiscard]] std::string to_string(const UnseenPart& part);
// The lines of all.
[[nodiscard]] std::vector<std::string> lines_of(const std::vector<UnseenPart>& parts);

}  // namespace ttrace
