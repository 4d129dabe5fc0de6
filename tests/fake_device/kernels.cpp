// Operators that do not enqueue torch's CPU kernel: allocation, storage, and copies within the
// device, to it and from it, with the waits that CUDA has.
#include "fake_device/host_alias.h"
#include "fake_device/runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <deque>
#include <optional>

namespace ttrace::testing::fake {
namespace {

// ---- copies ----

// Values that a plain copy of bytes moves right.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
}

void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  const StreamKey stream = current_stream(source.device());
  const StreamKey receiver = current_stream(target.device());
  Executor& device = executor();
  if (receiver != stream) {  // another device: its stream lends the memory and gets it back
    device.block(stream, device.record(receiver));
  }
  HostAliases aliases;
  device.enqueue(stream, "copy", [from = aliases.of(source), to = aliases.of(target)] {
    const KernelScope scope;
    to.copy_(from);
  });
  if (receiver != stream) {
    device.block(receiver, device.record(stream));
  }
  device.count([&](Counters& counters) {
    ++counters.device_copies;
    counters.device_bytes += target.nbytes();
  });
}

void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor packed = source;
  if (!is_plain(source) || source.scalar_type() != target.scalar_type()) {
    packed = at::empty(target.sizes(), source.options().dtype(target.scalar_type()));
    copy_on_device(source, packed);
  }
  const bool direct = is_plain(target);
  const at::Tensor landing = direct ? target : at::empty(target.sizes(), target.options());
  const StreamKey stream = current_stream(source.device());
  executor().enqueue(
      stream,
      "copy to host",
      [to = landing.mutable_data_ptr(), from = packed.const_data_ptr(), size = landing.nbytes()] {
        std::memcpy(to, from, size);
      });
  executor().count([&](Counters& counters) {
    ++counters.read_copies;
    counters.read_bytes += landing.nbytes();
  });
  Block* const pinned = pinned_blocks().find(landing.const_data_ptr());
  if (non_blocking && pinned != nullptr) {
    pinned_blocks().record(pinned, stream);
    return;
  }
  executor().wait_stream(stream);
  if (!direct) {
    target.copy_(landing);
  }
}

void copy_to_device(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor values = source;
  if (!is_plain(source) || source.scalar_type() != target.scalar_type()) {
    values = at::empty(target.sizes(), source.options().dtype(target.scalar_type()));
    values.copy_(source);
  }
  const bool direct = is_plain(target);
  const at::Tensor landing = direct ? target : at::empty(target.sizes(), target.options());
  const StreamKey stream = current_stream(target.device());
  Block* const pinned = pinned_blocks().find(values.const_data_ptr());
  // What may be overwritten as soon as this returns is read at once.
  const at::Tensor kept = non_blocking && pinned == nullptr ? values.clone() : at::Tensor();
  const at::Tensor& read = kept.defined() ? kept : values;
  executor().enqueue(stream,
                     "copy to device",
                     [to = landing.mutable_data_ptr(),
                      from = read.const_data_ptr(),
                      size = landing.nbytes(),
                      kept] { std::memcpy(to, from, size); });
  executor().count([&](Counters& counters) {
    ++counters.write_copies;
    counters.write_bytes += landing.nbytes();
  });
  if (!direct) {
    copy_on_device(landing, target);
  }
  if (!non_blocking) {
    executor().wait_stream(stream);
  } else if (pinned != nullptr) {
    pinned_blocks().record(pinned, stream);
  }
}

at::Tensor& copy(at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  if (target.numel() == 0 || target.is_same(source)) {
    return target;
  }
  const KernelScope scope;
  const c10::DeviceGuard guard(source.is_cpu() ? target.device() : source.device());
  const at::Tensor values = source.expand_as(target);
  if (source.is_cpu()) {
    copy_to_device(values, target, non_blocking);
  } else if (target.is_cpu()) {
    copy_to_host(values, target, non_blocking);
  } else {
    copy_on_device(values, target);
  }
  return target;
}

at::Scalar read_scalar(const at::Tensor& tensor) {
  const KernelScope scope;
  executor().count([&](Counters& counters) {
    ++counters.read_copies;
    counters.read_bytes += tensor.element_size();
  });
  executor().wait_stream(current_stream(tensor.device()));
  return at::_local_scalar_dense(HostAliases().of(tensor));
}

// ---- memory ----

at::Tensor empty(c10::IntArrayRef sizes,
                 std::optional<at::ScalarType> type,
                 std::optional<at::Layout>,
                 std::optional<at::Device> device,
                 std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(fake::device()));
  return at::detail::empty_generic(
      sizes, &device_allocator(), kFakeKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_with_strides(c10::IntArrayRef sizes,
                              c10::IntArrayRef strides,
                              std::optional<at::ScalarType> type,
                              std::optional<at::Layout>,
                              std::optional<at::Device> device,
                              std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(fake::device()));
  return at::detail::empty_strided_generic(
      sizes, strides, &device_allocator(), kFakeKeys, c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self,
                         c10::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  const auto elements = static_cast<std::size_t>(self.storage_offset() + self.numel());
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (elements * self.element_size() > storage->nbytes()) {
    resize_storage(*storage, elements * self.element_size());
  }
  return self;
}

at::Tensor& set_to_nothing(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  const c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, &device_allocator(), true);
  return self.set_(nothing, 0, {0}, {1});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::impl::getDeviceGuardImpl(kType)->recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

// Torch takes another formula on accelerators, whose results differ from the CPU's.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  if (p == 0 || !train || input.numel() == 0) {
    return input;
  }
  if (p == 1) {
    return input.mul(at::zeros({}, input.options()));
  }
  at::Tensor noise = at::empty_like(input);
  return input.mul(noise.bernoulli_(1 - p).div_(1 - p));
}

// Libraries undo their registrations when they end, so these never do.
torch::Library& library_of(c10::DispatchKey key) {
  static auto* const libraries = new std::deque<torch::Library>();
  return libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

}  // namespace

void register_kernels() {
  library_of(c10::DispatchKey::PrivateUse1)
      .impl("empty.memory_format", TORCH_FN(empty))
      .impl("empty_strided", TORCH_FN(empty_with_strides))
      .impl("resize_", TORCH_FN(resize))
      .impl("set_", TORCH_FN(set_to_nothing))
      .impl("record_stream", TORCH_FN(record_stream))
      .impl("copy_", TORCH_FN(copy))
      .impl("_local_scalar_dense", TORCH_FN(read_scalar))
      .impl("dropout", TORCH_FN(dropout));
  library_of(c10::DispatchKey::AutogradPrivateUse1).impl("dropout", TORCH_FN(dropout));
}

}  // namespace ttrace::testing::fake
