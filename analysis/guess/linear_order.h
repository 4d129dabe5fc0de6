// In which order a linear keeps the dimensions of its weight: what it computed says it where the
// shape, a square, does not.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/guess/side.h"

#include <optional>

namespace ttrace {

// True for [out in], false for [in out]; nothing if the parameter is no matrix whose module
// returned its product with what the module took, plus a vector of its own at most.
[[nodiscard]] std::optional<bool> keeps_inputs_last(const GuessSide& side, UnitNumber weight);

}  // namespace ttrace
