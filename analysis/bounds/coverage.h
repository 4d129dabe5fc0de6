// How many tensors of the reference the noise passes say something of.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/noise.h"
#include "analysis/findings/report.h"

#include <optional>
#include <span>

namespace ttrace {

// Over the tensors of the reference that could be moved: no integers, data, parameters of the start
// or settings of the optimizer. Nothing without noise passes, or where a table of an earlier
// version does not tell.
[[nodiscard]] std::optional<NoiseCoverage> coverage_of(const NoiseModel& noise,
                                                       std::span<const Match> matches);

}  // namespace ttrace
