#include "rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

namespace ttrace::reference {

RotaryTable rotary_table(std::int64_t positions,
                         std::int64_t head_size,
                         std::int64_t base,
                         const at::TensorOptions& options) {
  const at::Tensor exponent = at::arange(0, head_size, 2, options) / head_size;  // [D/2]
  const at::Tensor frequency = 1.0 / at::pow(at::Scalar(base), exponent);        // [D/2]
  const at::Tensor angle = at::outer(at::arange(positions, options), frequency)  // [S, D/2]
                               .view({positions, 1, 1, head_size / 2});
  return {angle.cos(), angle.sin()};
}

RotaryTable at_positions(const RotaryTable& table, const at::Tensor& positions) {
  const at::Tensor rows = positions.t();  // [S, B]
  const auto select = [&](const at::Tensor& values) {
    return values.index_select(0, rows.flatten()).view({rows.size(0), rows.size(1), 1, -1});
  };
  return {select(table.cosine), select(table.sine)};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor wide = x.to(table.cosine.scalar_type());
  const at::Tensor first = wide.narrow(-1, 0, half);      // [S, B, N, D/2]
  const at::Tensor second = wide.narrow(-1, half, half);  // [S, B, N, D/2]
  const at::Tensor turned = at::cat(
      {first * table.cosine - second * table.sine, second * table.cosine + first * table.sine},
      -1);  // [S, B, N, D]
  return turned.to(x.scalar_type());
}

}  // namespace ttrace::reference
