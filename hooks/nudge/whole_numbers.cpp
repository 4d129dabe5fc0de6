#include "hooks/nudge/whole_numbers.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/tensor_access.h"
#include "hooks/nudge/operator_name.h"
#include "trace/base/star_pattern.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/trunc.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

// Below it, a format holds every whole number: 2^p with p bits of mantissa.
constexpr double kF64 = 9007199254740992.0;
constexpr double kF32 = 16777216.0;
constexpr double kF16 = 2048.0;
constexpr double kBF16 = 256.0;

// On an accelerator every look costs calls of kernels, so that only few values are looked at.
constexpr std::int64_t kFewValues = 4096;
constexpr int kFewTensors = 4;
constexpr std::string_view kSums = "sum nansum cumsum";

// Of a floating type; 0 for types whose values are never taken for whole numbers.
double limit_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return kF64;
    case at::kFloat:
      return kF32;
    case at::kHalf:
      return kF16;
    case at::kBFloat16:
      return kBF16;
    default:
      return 0.0;
  }
}

// The largest magnitude; nothing where a value is no whole number, or not below `limit`.
template <class T>
std::optional<double> largest_whole(const void* data, std::int64_t count, double limit) {
  const auto* const values = static_cast<const T*>(data);
  double largest = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    const double magnitude = std::fabs(value);
    // Written so that NaN is refused as well, and the conversion is defined.
    if (!(magnitude < limit) ||
        static_cast<double>(static_cast<std::int64_t>(magnitude)) != magnitude) {
      return std::nullopt;
    }
    largest = std::max(largest, magnitude);
  }
  return largest;
}

std::optional<double> largest_whole(at::ScalarType type,
                                    const void* data,
                                    std::int64_t count,
                                    double limit) {
  switch (type) {
    case at::kDouble:
      return largest_whole<double>(data, count, limit);
    case at::kFloat:
      return largest_whole<float>(data, count, limit);
    case at::kHalf:
      return largest_whole<c10::Half>(data, count, limit);
    case at::kBFloat16:
      return largest_whole<c10::BFloat16>(data, count, limit);
    case at::kLong:
      return largest_whole<std::int64_t>(data, count, limit);
    case at::kInt:
      return largest_whole<std::int32_t>(data, count, limit);
    case at::kByte:
      return largest_whole<std::uint8_t>(data, count, limit);
    case at::kBool:
      return 1.0;
    default:
      return std::nullopt;
  }
}

// Every element once, whatever an expanded tensor shows several times.
at::Tensor without_repeats(const at::Tensor& tensor) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    sizes[dim] = tensor.strides()[dim] == 0 ? std::min<std::int64_t>(sizes[dim], 1) : sizes[dim];
  }
  return tensor.as_strided(sizes, tensor.strides());
}

// As largest_whole(), of a readable tensor on the host.
std::optional<double> largest_on_host(const at::Tensor& tensor, double limit) {
  const at::ScalarType type = tensor.scalar_type();
  if (tensor.numel() == 0) {
    return 0.0;
  }
  if (tensor.is_non_overlapping_and_dense()) {
    return largest_whole(type, tensor.const_data_ptr(), tensor.numel(), limit);
  }
  if (!largest_whole(type, tensor.const_data_ptr(), 1, limit)) {
    return std::nullopt;  // as nearly always, without a copy
  }
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  const at::Tensor values = without_repeats(tensor).contiguous();
  return largest_whole(type, values.const_data_ptr(), values.numel(), limit);
}

// One bool on the device: whether all values are whole numbers below `limit`. REQUIRES: a type that
// has magnitudes.
at::Tensor whole_on_device(const at::Tensor& tensor, double limit) {
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard device(tensor.device());
  return at::logical_and(tensor.eq(at::trunc(tensor)).all(), at::abs(tensor).lt(limit).all());
}

at::Tensor both(const at::Tensor& left, const at::Tensor& right) {
  if (!left.defined() || left.device() != right.device()) {
    return right;
  }
  const Unobserved unobserved;
  const c10::DeviceGuard device(left.device());
  return at::logical_and(left, right);
}

// Looks at one operator's inputs.
class Reader {
 public:
  Reader(const at::RecordFunction& function, const OperatorEffects& effects)
      : effects_(effects), is_sum_(fits_any(kSums, base_name(function.name()))) {
    reads_ = {true, 1.0};
  }

  void read(const at::Tensor& tensor) {
    if (!reads_.are_whole) {
      return;
    }
    reads_.are_whole = tensor.has_storage() && unreadable(tensor).empty() &&
                       (tensor.is_cpu() ? read_on_host(tensor) : read_on_device(tensor));
    terms_ = std::max(terms_, tensor.numel());
  }

  [[nodiscard]] WholeReads result() {
    reads_.largest *= static_cast<double>(terms_);
    return std::move(reads_);
  }

 private:
  bool read_on_host(const at::Tensor& tensor) {
    const double limit = limit_of(tensor.scalar_type());
    const auto largest = largest_on_host(tensor, limit == 0.0 ? kF64 : std::max(limit, kF32));
    reads_.largest *= std::max(largest.value_or(0.0), 1.0);
    return largest.has_value();
  }

  bool read_on_device(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kBool) {
      return true;
    }
    const bool sums = effects_.noise == NoiseClass::kReduction;
    const bool few = tensor.numel() <= kFewValues && tensors_++ < kFewTensors;
    if (limit_of(tensor.scalar_type()) == 0.0 || (sums ? !is_sum_ : !few)) {
      return false;
    }
    const double addends =
        sums ? static_cast<double>(std::max<std::int64_t>(tensor.numel(), 1)) : 1.0;
    reads_.on_device = both(reads_.on_device, whole_on_device(tensor, kF32 / addends));
    return true;
  }

  const OperatorEffects& effects_;
  bool is_sum_;
  int tensors_ = 0;  // on an accelerator
  std::int64_t terms_ = 1;
  WholeReads reads_;
};

}  // namespace

WholeReads whole_reads(const at::RecordFunction& function,
                       const OperatorEffects& effects,
                       const std::function<bool(const at::Tensor&)>& is_blank) {
  Reader reader(function, effects);
  const auto inputs = function.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = effects.writes_argument(i);
    if (is_written && effects.overwrites) {
      continue;
    }
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (!is_written || !is_blank(tensor)) {
        reader.read(tensor);
      }
    });
  }
  return reader.result();
}

bool is_exact(const at::Tensor& result, NoiseClass noise, const WholeReads& reads) {
  const double limit = limit_of(result.scalar_type());
  const double sums = std::max(limit, kF32);  // F16 and BF16 are summed up in F32
  return reads.are_whole && !reads.on_device.defined() && limit > 0.0 &&
         (noise != NoiseClass::kReduction || reads.largest < sums) &&
         largest_on_host(result, limit).has_value();
}

at::Tensor exact_on_device(const at::Tensor& result, const WholeReads& reads) {
  const double limit = limit_of(result.scalar_type());
  if (!reads.are_whole || !reads.on_device.defined() || limit == 0.0 ||
      result.numel() > kFewValues || reads.on_device.device() != result.device()) {
    return {};
  }
  return both(reads.on_device, whole_on_device(result, limit));
}

}  // namespace ttrace
