// Which operator of one program is which of another.
//
// Both ran the same module, but one of them cuts tensors over ranks, communicates, and copies where
// the other does not. Two operators can be the same if they have one name and direction. Of all
// ways to pair them in order, the best one is taken: what counts for a pair are equal or cut
// shapes, the same line of source, the same module, and values of one size. Backward operators are
// paired within those of forward operators that are a pair, because the order of a backward is that
// of its graph.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/zoom/operator_sequence.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace ttrace {

// For every operator of `other`, its partner's position in `reference`; nothing if it has none.
[[nodiscard]] std::vector<std::optional<std::size_t>> align(const OperatorSequence& reference,
                                                            const OperatorSequence& other);

}  // namespace ttrace
