// Rotary positions: each pair (x[i], x[i + D/2]) of a head is turned by the angle
// position * base^(-2i/D), so that the product of a query and a key depends on their distance only.
//
// Source: Su et al., "RoFormer: Enhanced transformer with rotary position embedding" (2021),
// section 3.2.2; pairs are taken from the two halves of the head instead of from neighbours, which
// is the same up to the order of numbers within a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ttrace::reference {

// In high precision (precision.h).
struct RotaryTable {
  at::Tensor cosine;  // [S, 1 or B, 1, D/2]
  at::Tensor sine;    // the same
};

[[nodiscard]] RotaryTable rotary_table(std::int64_t positions,
                                       std::int64_t head_size,
                                       std::int64_t base,
                                       const at::TensorOptions& options);

// The table's rows at the positions of a micro-batch's tokens, [B, S] -> [S, B, 1, D/2].
[[nodiscard]] RotaryTable at_positions(const RotaryTable& table, const at::Tensor& positions);

// [S, B, N or G, D] -> the same shape and type; computed in the table's type.
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

}  // namespace ttrace::reference
