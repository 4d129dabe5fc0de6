// How far apart the numbers of a floating type are.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <ttrace/element_type.h>

namespace ttrace {

// Distance from |value| to the next larger number of a floating type.
[[nodiscard]] double unit_in_last_place(ElementType type, double value);

// The floating type with fewer mantissa bits; an integer type counts as exact.
[[nodiscard]] ElementType coarser(ElementType left, ElementType right);

}  // namespace ttrace
