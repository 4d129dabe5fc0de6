#include "analysis/reports/coverage_text.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

namespace ttrace {

std::string coverage_text(const NoiseCoverage& coverage) {
  std::string text =
      fmt::format("noise reached {} of {}", coverage.reached, counted(coverage.tensors, "tensor"));
  const std::size_t untouched = coverage.untouched_tensors();
  const std::size_t equal = coverage.tensors - coverage.reached - untouched;
  if (equal > 0) {
    text += fmt::format("; {} that no pass moved must be equal", equal);
  }
  if (untouched > 0) {
    std::string kinds;
    for (const auto& [kind, count] : coverage.untouched) {
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, name_of(kind));
    }
    text += fmt::format("; {} ({}) {}, because code that torch does not dispatch made {}",
                        untouched,
                        kinds,
                        untouched == 1 ? "has a class default" : "have class defaults",
                        untouched == 1 ? "it" : "them");
  }
  return text;
}

}  // namespace ttrace
