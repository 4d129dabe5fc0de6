// What the index of a rank file says of a tensor's values.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/base/instruction_set.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ttrace {

// Norm and largest magnitude are of the finite values.
struct ValueFigures {
  double norm = 0.0;
  double max_abs = 0.0;
  std::uint64_t nonfinite = 0;
};

// `bytes` are whole elements. Every instruction set gives the same bits.
[[nodiscard]] ValueFigures figures_of(ElementType type,
                                      std::span<const std::byte> bytes,
                                      InstructionSet set = best_instruction_set());

}  // namespace ttrace
