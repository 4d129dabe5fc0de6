// What a report says about the coverage of noise.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <string>

namespace ttrace {

// "noise reached 812 of 830 tensors; ...", without a full stop.
[[nodiscard]] std::string coverage_text(const NoiseCoverage& coverage);

}  // namespace ttrace
