#include "fp8.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <vector>

namespace ttrace::reference {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMxBlock = 32;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::ScalarType type_of(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

double largest(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? 448.0 : 57344.0;
}

// Magnitudes that count in an amax.
at::Tensor magnitudes(const at::Tensor& x) {
  return x.masked_fill(x.isfinite().logical_not(), 0.0).abs();
}

// f32: amax / largest number. CUDA would multiply by the reciprocal of a number, which gives scales
// that are an ulp away from the CPU's, but it divides by a tensor.
at::Tensor exact_scale(const at::Tensor& amax, Fp8Format format) {
  return amax / at::full({}, largest(format), amax.options());
}

// [] f32: scale of a tensor with that amax.
at::Tensor scale_of(const at::Tensor& amax, Fp8Format format) {
  return at::where(amax.eq(0.0), at::ones_like(amax), exact_scale(amax, format));
}

// The smallest power of two that is not below the scale, as E8M0. The bits of an f32 above those of
// its mantissa are the code of the power of two below; any mantissa carries into the next one. That
// is not so for subnormal numbers up to 2^-127, the smallest power, whose code is 0. Zero becomes
// the smallest: masked tokens leave many blocks of gradients with nothing but zeros, and next to
// the scales of the others a constant would be by far the largest.
at::Tensor power_of_two(const at::Tensor& scale) {
  constexpr std::int64_t kMantissaBits = 23;
  constexpr std::int64_t kMantissa = (std::int64_t{1} << kMantissaBits) - 1;
  constexpr std::int64_t kSmallest = std::int64_t{1} << (kMantissaBits - 1);
  const at::Tensor bits = scale.contiguous().view(at::kInt);
  return (bits + kMantissa)
      .bitwise_right_shift(kMantissaBits)
      .masked_fill(bits.le(kSmallest), 0)
      .to(at::kByte)
      .view(at::kFloat8_e8m0fnu);
}

// x, scale f32 of one shape (or scale []) -> values, f32.
at::Tensor round_to(Fp8Format format, const at::Tensor& x, const at::Tensor& scale) {
  const at::Tensor scaled = x / scale;
  const double limit = largest(format);
  const at::Tensor infinite = format == Fp8Format::kE4M3 ? at::full_like(x, kNan) : x;
  // A finite number saturates even where the quotient is beyond f32.
  const at::Tensor saturated = at::where(x.isinf(), infinite, scaled.clamp(-limit, limit));
  return saturated.to(type_of(format)).to(at::kFloat) * scale;
}

// x [r, f], cut into blocks of rows x columns, the last ones shorter -> amax of each [R, C].
at::Tensor amax_of_blocks(const at::Tensor& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t more_rows = (rows - x.size(0) % rows) % rows;
  const std::int64_t more_columns = (columns - x.size(1) % columns) % columns;
  const at::Tensor padded = at::constant_pad_nd(magnitudes(x), {0, more_columns, 0, more_rows});
  return padded.view({padded.size(0) / rows, rows, padded.size(1) / columns, columns}).amax({1, 3});
}

struct InPlaceOf : torch::autograd::Function<InPlaceOf> {
  static at::Tensor forward(AutogradContext* /*context*/,
                            const at::Tensor& /*x*/,
                            const at::Tensor& values) {
    return values;
  }
  static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
    return {gradients[0], {}};
  }
};

}  // namespace

Fp8Operand::Fp8Operand(Fp8Format format,
                       bool is_weight,
                       const Fp8Config& config,
                       c10::Device device)
    : format_(format), is_weight_(is_weight), config_(config) {
  if (config.recipe == Fp8Recipe::kDelayed) {
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
    history_ = at::zeros({config.history}, options);
    step_amax_ = at::zeros({}, options);
  }
}

Quantised Fp8Operand::quantise(const at::Tensor& x) {
  const bool whole = config_.recipe == Fp8Recipe::kCurrent || config_.recipe == Fp8Recipe::kDelayed;
  const at::Tensor wide = x.detach().to(at::kFloat);
  Quantised result = whole ? quantise_whole(wide) : quantise_blocks(wide);
  result.values = result.values.to(x.scalar_type());
  return result;
}

Quantised Fp8Operand::quantise_whole(const at::Tensor& x) {
  at::Tensor amax = magnitudes(x).amax();
  if (config_.recipe == Fp8Recipe::kDelayed) {
    amax = delayed_amax(amax);
  }
  const at::Tensor scale = scale_of(amax, format_);
  return {round_to(format_, x, scale), scale};
}

at::Tensor Fp8Operand::delayed_amax(const at::Tensor& now) {
  step_amax_ = at::maximum(step_amax_, now);
  const at::Tensor past = history_.amax();
  const bool is_gradient = format_ == Fp8Format::kE5M2;
  return past.item<float>() == 0.0F && is_gradient ? now : past;
}

Quantised Fp8Operand::quantise_blocks(const at::Tensor& x) const {
  const std::int64_t columns = config_.recipe == Fp8Recipe::kMxfp8 ? kMxBlock : kBlock;
  const std::int64_t rows = config_.recipe == Fp8Recipe::kBlockwise && is_weight_ ? kBlock : 1;
  const std::int64_t features = x.size(-1);
  const at::Tensor matrix = x.reshape({-1, features});
  const at::Tensor scale =
      power_of_two(exact_scale(amax_of_blocks(matrix, rows, columns), format_));  // [R, C]

  const at::Tensor of_elements = scale.to(at::kFloat)
                                     .repeat_interleave(rows, 0)
                                     .repeat_interleave(columns, 1)
                                     .narrow(0, 0, matrix.size(0))
                                     .narrow(1, 0, features);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = scale.size(1);
  return {round_to(format_, matrix, of_elements).view(x.sizes()),
          is_weight_ ? scale : scale.view(shape)};
}

void Fp8Operand::end_step() {
  if (config_.recipe == Fp8Recipe::kDelayed) {
    history_ = at::cat({step_amax_.view({1}), history_.narrow(0, 0, config_.history - 1)});
    step_amax_ = at::zeros({}, history_.options());
  }
}

Fp8Operands::Fp8Operands(const Fp8Config& config, c10::Device device)
    : input(Fp8Format::kE4M3, false, config, device),
      weight(Fp8Format::kE4M3, true, config, device),
      gradient(Fp8Format::kE5M2, false, config, device) {}

void Fp8Operands::end_step() {
  input.end_step();
  weight.end_step();
  gradient.end_step();
}

at::Tensor in_place_of(const at::Tensor& x, const at::Tensor& values) {
  return InPlaceOf::apply(x, values);
}

}  // namespace ttrace::reference
