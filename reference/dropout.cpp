#include "dropout.h"

#include "data.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <xxhash.h>

namespace ttrace::reference {
namespace {

constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15U;

std::uint64_t stream_of(const std::string& path, const Draw& draw) {
  constexpr std::uint64_t kFactor = 1000003;
  const std::uint64_t place =
      (draw.seed * kFactor + static_cast<std::uint64_t>(draw.step)) * kFactor +
      static_cast<std::uint64_t>(draw.microbatch);
  return splitmix64(XXH3_64bits(path.data(), path.size()) ^ splitmix64(place));
}

}  // namespace

at::Tensor Dropout::kept(at::IntArrayRef shape, std::int64_t samples, const Draw& draw) const {
  const at::Tensor drawn = at::empty(shape, at::kBool);  // samples in the micro-batch's order
  auto* element = drawn.mutable_data_ptr<bool>();
  const auto count = static_cast<std::uint64_t>(drawn.numel());
  const std::uint64_t stream = stream_of(path_, draw);
  const auto limit = static_cast<std::uint64_t>(probability_ * 4294967296.0);  // p 2^32
  for (std::uint64_t i = 0; i < count; ++i) {
    element[i] = splitmix64(stream + i * kGoldenRatio) >> 32U >= limit;
  }
  return drawn.index_select(samples, draw.order);
}

at::Tensor Dropout::apply(const at::Tensor& x, const at::Tensor& kept) const {
  return at::where(kept, x / (1.0 - probability_), 0.0);
}

}  // namespace ttrace::reference
