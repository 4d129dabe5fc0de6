#include "hooks/base/tensor_access.h"

#include "hooks/base/byte_buffers.h"
#include "hooks/base/cuda_functions.h"
#include "hooks/base/snapshot.h"

#include <ttrace/error.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>
#include <cstring>

namespace ttrace {

thread_local int Unobserved::depth = 0;
namespace {

// Wrappers whose values are elsewhere.
constexpr c10::DispatchKeySet kWrappers =
    c10::DispatchKeySet({c10::DispatchKey::FuncTorchGradWrapper,
                         c10::DispatchKey::FuncTorchBatched,
                         c10::DispatchKey::Functionalize,
                         c10::DispatchKey::Batched,
                         c10::DispatchKey::Python});

// Asks whether the device's current stream records a graph. LibTorch has the question since 2.13.
template <class Guard>
bool asks_stream(const Guard& guard, c10::Device device) {
  if constexpr (requires { guard.isStreamCapturing(guard.getStream(device)); }) {
    return guard.isStreamCapturing(guard.getStream(device));
  }
  return false;
}

bool is_in_graph(const at::Tensor& tensor) {
  static std::array<std::atomic<bool>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> has_no_graphs;
  const c10::Device device = tensor.device();
  std::atomic<bool>& never = has_no_graphs.at(static_cast<std::size_t>(device.type()));
  if (device.is_cpu() || never) {
    return false;
  }
  if (device.is_cuda()) {  // in any version of torch
    return current_cuda_stream_records(device.index());
  }
  try {
    return asks_stream(c10::impl::VirtualGuardImpl(device.type()), device);
  } catch (const c10::Error&) {  // a device that cannot answer records none
    never = true;
    return false;
  }
}

}  // namespace

WeakStorage weak_storage(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl();
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

std::optional<ElementType> element_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return ElementType::kF64;
    case at::kFloat:
      return ElementType::kF32;
    case at::kHalf:
      return ElementType::kF16;
    case at::kBFloat16:
      return ElementType::kBF16;
    case at::kLong:
      return ElementType::kI64;
    case at::kInt:
      return ElementType::kI32;
    case at::kByte:
      return ElementType::kU8;
    case at::kBool:
      return ElementType::kBool;
    case at::kFloat8_e4m3fn:
      return ElementType::kE4M3;
    case at::kFloat8_e5m2:
      return ElementType::kE5M2;
    case at::kFloat8_e8m0fnu:
      return ElementType::kE8M0;
    default:
      return std::nullopt;
  }
}

bool is_wrapper(const at::Tensor& tensor) {
  return !(tensor.unsafeGetTensorImpl()->key_set() & kWrappers).empty();
}

// FSDP frees what it has gathered by making a storage smaller than its tensors.
static bool is_freed(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return false;
  }
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.storage().nbytes() < static_cast<std::size_t>(last + 1) * tensor.element_size();
}

std::string unreadable(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "is undefined";
  }
  if (is_wrapper(tensor)) {
    return "is a tensor subclass";
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_meta()) {
    return "has no dense storage";
  }
  if (!element_type_of(tensor)) {
    return std::string("has an element type that a trace cannot hold (") +
           c10::toString(tensor.scalar_type()) + ")";
  }
  if (is_freed(tensor)) {
    return "has no memory, because a wrapper has freed it";
  }
  return is_in_graph(tensor) ? std::string(kInGraph) : std::string();
}

void require_readable(const std::string& path,
                      const at::Tensor& tensor,
                      std::string_view consequence) {
  const std::string reason = unreadable(tensor);
  TTRACE_CHECK(
      reason.empty(), UsageError, "parameter ", path, " ", reason, ", so it ", consequence);
}

std::vector<std::int64_t> shape_of(const at::Tensor& tensor) {
  return tensor.sizes().vec();
}

TensorCopy copy_tensor(const at::Tensor& tensor) {
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  TensorCopy result;
  result.type = element_type_of(tensor).value();
  result.shape = shape_of(tensor);
  result.bytes = ByteBuffers::of_process().take(static_cast<std::size_t>(tensor.numel()) *
                                                element_size(result.type));
  if (!result.bytes.empty()) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).resolve_neg().contiguous();
    std::memcpy(result.bytes.data(), plain.const_data_ptr(), result.bytes.size());
  }
  return result;
}

void wait_for_device_of(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    c10::impl::VirtualGuardImpl(tensor.device().type()).synchronizeDevice(tensor.device().index());
  }
}

void overwrite_tensor(const at::Tensor& tensor, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) {
    return;
  }
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  TTRACE_CHECK(bytes.size() == static_cast<std::size_t>(tensor.nbytes()),
               InternalError,
               "overwriting a tensor of ",
               tensor.nbytes(),
               " bytes by ",
               bytes.size());
  // from_blob takes what it could write to, but copy_ only reads it.
  const at::Tensor values = at::from_blob(
      const_cast<std::byte*>(bytes.data()), tensor.sizes(), tensor.options().device(at::kCPU));
  at::Tensor(tensor).copy_(values);  // returns when the device has them
}

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

TensorIdentity::TensorIdentity(const at::Tensor& tensor)
    : storage(weak_storage(tensor)),
      offset(tensor.storage_offset()),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      version(version_of(tensor)) {}

bool TensorIdentity::same_place(const at::Tensor& tensor) const {
  return !storage.expired() && storage._unsafe_get_target() == storage_of(tensor) &&
         offset == tensor.storage_offset() && tensor.sizes() == sizes &&
         tensor.strides() == strides;
}

bool TensorIdentity::same_value(const at::Tensor& tensor) const {
  return same_place(tensor) && version == version_of(tensor);
}

}  // namespace ttrace
