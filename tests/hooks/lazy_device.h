// An accelerator for machines without one: torch's spare device type on host memory, whose work is
// only done when somebody waits for the device. A copy that does not wait sees the old values.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>

namespace ttrace::testing {

class LazyDevice {
 public:
  static constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

  static LazyDevice& get() {
    static LazyDevice device;
    return device;
  }
  // Work of a stream that is not the current one.
  void enqueue(std::function<void()> work) { queue_.push_back(std::move(work)); }
  void synchronize() {
    while (!queue_.empty()) {
      queue_.front()();
      queue_.pop_front();
    }
  }
  [[nodiscard]] bool idle() const { return queue_.empty(); }

 private:
  std::deque<std::function<void()>> queue_;
};

// One device, one stream that is current.
struct LazyGuard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device() { return {LazyDevice::kType, 0}; }
  [[nodiscard]] c10::DeviceType type() const override { return LazyDevice::kType; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device) const override { return device(); }
  [[nodiscard]] c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device());
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void synchronizeDevice(const c10::DeviceIndex) const override { LazyDevice::get().synchronize(); }
};

struct LazyAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = std::calloc(size == 0 ? 1 : size, 1);
    return {memory, memory, &std::free, LazyGuard::device()};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* target, const void* source, std::size_t size) const override {
    std::memcpy(target, source, size);
  }
};

inline LazyAllocator lazy_allocator;
C10_REGISTER_GUARD_IMPL(PrivateUse1, LazyGuard);

inline at::Tensor lazy_empty_strided(c10::SymIntArrayRef sizes,
                                     c10::SymIntArrayRef strides,
                                     std::optional<at::ScalarType> type,
                                     std::optional<at::Layout>,
                                     std::optional<at::Device>,
                                     std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides),
                                           &lazy_allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

inline at::Tensor lazy_empty(c10::SymIntArrayRef sizes,
                             std::optional<at::ScalarType> type,
                             std::optional<at::Layout>,
                             std::optional<at::Device>,
                             std::optional<bool>,
                             std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                   &lazy_allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat),
                                   format);
}

// Runs on the current stream and does not wait for the others. Handles only contiguous tensors of
// one type.
inline at::Tensor lazy_copy(const at::Tensor& source, const at::Tensor& target, bool) {
  TORCH_CHECK(source.is_contiguous() && target.is_contiguous() &&
              source.scalar_type() == target.scalar_type());
  std::memcpy(target.mutable_data_ptr(), source.const_data_ptr(), source.nbytes());
  return target;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty_strided", lazy_empty_strided);
  library.impl("empty.memory_format", lazy_empty);
  library.impl("_copy_from", lazy_copy);
}

}  // namespace ttrace::testing
