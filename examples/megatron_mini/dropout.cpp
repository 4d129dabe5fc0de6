#include "dropout.h"

#include "splitmix.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>
#include <xxhash.h>

#include <utility>

namespace megatron_mini {

at::Tensor kept_elements(const std::string& path,
                         double probability,
                         std::uint64_t draw,
                         const std::vector<DrawnDimension>& dimensions) {
  at::Tensor positions = at::zeros({}, at::kLong);
  for (const auto& [size, indices] : dimensions) {
    positions = positions.unsqueeze(-1) * size + indices;
  }
  positions = positions.contiguous();
  const at::Tensor kept = at::empty(positions.sizes(), at::kBool);
  const std::uint64_t stream = splitmix64(XXH3_64bits(path.data(), path.size()) ^ splitmix64(draw));
  const auto threshold = static_cast<std::uint64_t>(probability * 0x1p32);
  const auto* position = positions.const_data_ptr<std::int64_t>();
  auto* keep = kept.mutable_data_ptr<bool>();
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    const auto number = static_cast<std::uint64_t>(position[i]);
    keep[i] = splitmix64(stream + number * kGolden) >> 32U >= threshold;
  }
  return kept;
}

at::Tensor drop(const at::Tensor& values, const at::Tensor& kept, double probability) {
  return values.masked_fill(kept.logical_not(), 0.0) / (1.0 - probability);
}

ResidualDropout::ResidualDropout(const Blueprint& blueprint, std::string path)
    : probability_(blueprint.model.dropout),
      sequence_(blueprint.model.sequence),
      parallel_(blueprint.parallel),
      path_(std::move(path)) {}

at::Tensor ResidualDropout::forward(const at::Tensor& input, const TokenPlaces& places) {
  if (probability_ == 0.0) {
    return input;
  }
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  const auto rows = x.size(0);
  const std::int64_t first = parallel_.sequence_parallel ? parallel_.tp.rank * rows : 0;
  const at::Tensor kept =
      scope.mask(kept_elements(path_,
                               probability_,
                               draw_of(places),
                               {{.size = sequence_, .indices = places.rows.narrow(0, first, rows)},
                                {.size = places.all_samples, .indices = places.samples},
                                {.size = x.size(2), .indices = at::arange(x.size(2))}})
                     .to(x.device()));
  return scope.out(drop(x, kept, probability_));
}

}  // namespace megatron_mini
