#include "analysis/findings/unmatched_name.h"

#include "analysis/findings/wording.h"
#include "trace/file/record.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace ttrace {

std::string to_string(const UnmatchedName& name) {
  std::vector<std::string_view> kinds;
  for (const Kind kind : name.kinds) {
    kinds.push_back(name_of(kind));
  }
  return fmt::format("{} {} ({}; {})",
                     name.path,
                     shape_text(name.shape),
                     fmt::join(kinds, ", "),
                     counted(name.tensors, "tensor"));
}

std::string nearest_text(const UnmatchedName& name) {
  std::string text;
  for (const NearName& near : name.nearest) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", near.path, shape_text(near.shape));
  }
  return text;
}

}  // namespace ttrace
