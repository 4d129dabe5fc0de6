#include "analysis/findings/required.h"

#include <fmt/core.h>

#include <algorithm>

namespace ttrace {

void hold_against(const Required& required, Report& report) {
  for (const UnseenPart& part : report.not_seen) {
    if (required.kinds.contains(part.kind)) {
      report.unmet.push_back(
          fmt::format("--require {} is not met: {}", name_of(part.kind), to_string(part)));
    }
  }
  for (const Kind kind : required.tensors) {
    const bool is_met = std::ranges::any_of(report.tensors, [&](const TensorVerdict& tensor) {
      return tensor.id.kind == kind && is_answered(tensor);
    });
    if (!is_met) {
      report.unmet.push_back(fmt::format(
          "--require {0} is not met: no tensor of the kind {0} was judged", name_of(kind)));
    }
  }
}

}  // namespace ttrace
