#include "hooks/device/held_tensor.h"

#include "hooks/base/tensor_access.h"
#include "hooks/device/kernel_registry.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>

namespace ttrace {
namespace {

c10::Stream current_stream_of(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// One stream per device, and an urgent one: a program that takes streams from the pool itself, as
// communication does, takes ordinary ones, so nothing that waits for a peer stands in the way.
c10::Stream side_stream_of(const c10::Device& device) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(device.type(), device.index());
  auto found = streams.find(key);
  if (found == streams.end()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    found = streams.emplace(key, guard.getStreamFromGlobalPool(device, true)).first;
  }
  return found->second;
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

class HeldTensor : public DeviceValues {
 public:
  // `values` are contiguous, and nobody else has them.
  explicit HeldTensor(at::Tensor values)
      : values_(std::move(values)), made_(values_.device().type()) {
    made_.record(current_stream_of(values_.device()));
  }

  [[nodiscard]] std::size_t size() const override { return values_.nbytes(); }

  [[nodiscard]] Digest digest() const override {
    const OnTheSide here(*this);
    return kernels_of(values_.device())->digest(values_.const_data_ptr(), bytes_of(values_));
  }

  [[nodiscard]] Deviation deviation_from(std::span<const std::byte> reference) const override {
    const OnTheSide here(*this);
    const at::Tensor other = at::empty_like(values_);
    other.copy_(on_host(reference));
    const ElementType type = element_type_of(values_).value();
    const ElementPairs pairs{
        type, type, other.const_data_ptr(), values_.const_data_ptr(), values_.numel()};
    const DeviceKernels& kernels = *kernels_of(values_.device());
    Deviation result;
    result.statistics = kernels.compare(pairs);
    if (result.statistics.difference_squared != 0.0 && is_floating(type)) {
      result.slices = kernels.sum_slices(values_.sizes(), pairs);
    }
    return result;
  }

  [[nodiscard]] std::vector<std::byte> bytes() const override {
    const OnTheSide here(*this);
    std::vector<std::byte> result(values_.nbytes());
    on_host(result).copy_(values_);  // returns when the host has them
    return result;
  }

 private:
  // What runs in its lifetime runs on a stream of its own, after the values were made. Every call
  // ends with a wait for that stream, so that memory can be given back right after.
  class OnTheSide {
   public:
    explicit OnTheSide(const HeldTensor& held) : stream_(side_stream_of(held.values_.device())) {
      held.made_.block(stream_.current_stream());
    }

   private:
    const Unobserved unobserved_;
    const at::NoGradGuard no_grad_;
    const c10::StreamGuard stream_;
  };

  // from_blob takes what it could write to; a source is only read.
  [[nodiscard]] at::Tensor on_host(std::span<const std::byte> bytes) const {
    return at::from_blob(
        const_cast<std::byte*>(bytes.data()), values_.sizes(), values_.options().device(at::kCPU));
  }

  const at::Tensor values_;
  c10::Event made_;
};

}  // namespace

std::unique_ptr<const DeviceValues> hold_on_device(const at::Tensor& tensor) {
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard device(tensor.device());
  return std::make_unique<HeldTensor>(
      tensor.detach().resolve_neg().clone(at::MemoryFormat::Contiguous));
}

bool holds_on_device(const at::Tensor& tensor, const std::vector<std::byte>& bytes) {
  const DeviceKernels* const kernels = kernels_of(tensor.device());
  if (kernels == nullptr || bytes.empty() || bytes.size() != tensor.nbytes()) {
    return false;
  }
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard device(tensor.device());
  const at::Tensor plain = tensor.detach().resolve_neg().contiguous();
  return kernels->digest(plain.const_data_ptr(), bytes_of(plain)) ==
         digest_of(bytes.data(), static_cast<std::int64_t>(bytes.size()));
}

}  // namespace ttrace
