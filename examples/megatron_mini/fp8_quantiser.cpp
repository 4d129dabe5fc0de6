#include "fp8_quantiser.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace megatron_mini {

namespace {

constexpr double kLargestE4M3 = 448.0;
constexpr double kLargestE5M2 = 57344.0;
constexpr double kSmallestE8M0 = 0x1p-127;

double largest_of(at::ScalarType format) {
  return format == at::kFloat8_e5m2 ? kLargestE5M2 : kLargestE4M3;
}

// Divides by a tensor, because CUDA multiplies by the reciprocal of a number; a scale that is an
// ulp away rounds all ties the same way.
at::Tensor scale_for(const at::Tensor& amax, at::ScalarType format) {
  return amax / at::full({}, largest_of(format), amax.options());
}

// Up to the next power of two: 2^e for a mantissa in [0.5, 1) and exponent e, but for powers of two
// themselves, whose mantissa is 0.5.
at::Tensor rounded_up(const at::Tensor& scale) {
  const auto [mantissa, exponent] = at::frexp(scale);
  const at::Tensor power = exponent - mantissa.le(0.5).to(exponent.scalar_type());
  return at::exp2(power.to(at::kFloat)).to(at::kFloat8_e8m0fnu);
}

// Blocks of `size` along a dimension; zeros fill the last one.
at::Tensor cut(const at::Tensor& tensor, std::int64_t dim, std::int64_t size) {
  const std::int64_t blocks = (tensor.size(dim) + size - 1) / size;
  std::vector<std::int64_t> missing = tensor.sizes().vec();
  missing[static_cast<std::size_t>(dim)] = blocks * size - tensor.size(dim);
  return at::cat({tensor, at::zeros(missing, tensor.options())}, dim)
      .unflatten(dim, {blocks, size});
}

// Each element repeated `size` times along a dimension, `length` in all.
at::Tensor spread_over(const at::Tensor& tensor,
                       std::int64_t dim,
                       std::int64_t size,
                       std::int64_t length) {
  return tensor.repeat_interleave(size, dim).narrow(dim, 0, length);
}

}  // namespace

std::int64_t fp8_block(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kBlockwise:
      return 128;
    case Fp8Recipe::kMxfp8:
      return 32;
    default:
      return 0;
  }
}

Fp8Quantiser::Fp8Quantiser(const Fp8Config& config, Fp8Operand operand)
    : config_(config), operand_(std::move(operand)) {
  if (config_.recipe == Fp8Recipe::kDelayed) {
    const at::TensorOptions options = at::TensorOptions(operand_.device).dtype(at::kFloat);
    history_ = at::zeros({config_.history}, options);
    collected_ = at::zeros({}, options);
  }
}

Fp8Values Fp8Quantiser::quantise(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = tensor.to(at::kFloat);
  Fp8Values result;
  if (fp8_block(config_.recipe) == 0) {
    result.scale = tensor_scale(wide);
    result.values = round_trip(wide, result.scale);
  } else {
    result = by_block(wide);
  }
  result.values = result.values.to(tensor.scalar_type());
  return result;
}

at::Tensor Fp8Quantiser::magnitudes(const at::Tensor& wide) const {
  return at::where(wide.isfinite(), wide.abs(), at::zeros({}, wide.options()));
}

at::Tensor Fp8Quantiser::shared_amax(const at::Tensor& tensor) const {
  at::Tensor amax = tensor;
  for (const Group& group : operand_.holders) {
    amax = all_reduce(amax, group, Reduction::kMax);
  }
  return amax;
}

at::Tensor Fp8Quantiser::tensor_scale(const at::Tensor& wide) {
  const at::Tensor amax = magnitudes(wide).max();
  if (config_.recipe == Fp8Recipe::kCurrent) {
    return scale_of(shared_amax(amax));
  }
  collected_ = at::maximum(collected_, amax);
  return delayed_scale(amax);
}

at::Tensor Fp8Quantiser::delayed_scale(const at::Tensor& amax) const {
  const at::Tensor past = history_.max();
  const bool fresh = past.item<float>() == 0.0F;
  return scale_of(fresh && operand_.is_gradient ? shared_amax(amax) : past);
}

Fp8Values Fp8Quantiser::by_block(const at::Tensor& wide) const {
  const std::int64_t block = fp8_block(config_.recipe);
  const std::int64_t features = wide.size(-1);
  const std::int64_t last = wide.dim() - 1;
  at::Tensor amax = cut(magnitudes(wide), last, block).amax(-1);  // [..., blocks]
  const bool squares = operand_.is_weight && config_.recipe == Fp8Recipe::kBlockwise;
  if (squares) {
    amax = cut(amax, 0, block).amax(1);
  }
  const at::Tensor scale = rounded_up(scale_for(amax, operand_.format).clamp_min(kSmallestE8M0));
  at::Tensor of_elements = spread_over(scale.to(at::kFloat), last, block, features);
  if (squares) {
    of_elements = spread_over(of_elements, 0, block, wide.size(0));
  }
  return {.values = round_trip(wide, of_elements), .scale = scale};
}

at::Tensor Fp8Quantiser::scale_of(const at::Tensor& amax) const {
  return scale_for(amax, operand_.format).masked_fill(amax.eq(0.0), 1.0);
}

at::Tensor Fp8Quantiser::round_trip(const at::Tensor& wide, const at::Tensor& scale) const {
  const double largest = largest_of(operand_.format);
  // Finite numbers saturate, even where the quotient is beyond f32.
  at::Tensor saturated = wide.div(scale).clamp(-largest, largest);
  if (operand_.format == at::kFloat8_e5m2) {
    saturated = at::where(wide.isinf(), wide, saturated);
  } else {
    saturated.masked_fill_(wide.isinf(), std::numeric_limits<double>::quiet_NaN());
  }
  return saturated.to(operand_.format).to(at::kFloat).mul(scale);
}

void Fp8Quantiser::roll(const at::Tensor& amax) {
  history_ = next_history(amax);
  collected_ = at::zeros({}, history_.options());
}

at::Tensor Fp8Quantiser::next_history(const at::Tensor& amax) const {
  at::Tensor next = history_.roll(1);
  next.select(0, 0).copy_(amax);
  return next;
}

}  // namespace megatron_mini
