// Whether a parameter after the optimizer's step is its high-precision copy, rounded to the
// parameter's type, element by element. No bound of norms sees one element at the border of a shard
// that was not written back.
//
// Optimizers that round in another way (stochastically, or to codes) do so in the reference as
// well: where the reference's parameter is not its own master, rounded, nothing is asked of the
// candidate's.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/check.h"

#include <optional>

namespace ttrace {

// `parameter` and `master` are records of one parameter and step. Nothing where a side lacks one of
// them, or holds no whole tensor.
[[nodiscard]] std::optional<Check> cast_check(const Match& parameter, const Match& master);

}  // namespace ttrace
