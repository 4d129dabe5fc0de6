// Converts torch tensors to bytes and back, and answers small questions about a tensor.
//
// Thread-safety: free functions without shared state. They disable gradient recording and operator
// observation around what they call, so that looking at a tensor leaves no trace in the program.
#pragma once

#include "hooks/base/tensor_copy.h"

#include <ttrace/element_type.h>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// In its lifetime, the operator callback ignores operators that this thread calls. It is a flag of
// ours, because torch's own guard makes torch look for callbacks anew at every other operator. The
// program's dispatch modes (selective checkpointing counts and replays operators) and its autocast
// do not see these operators either, because they concern only the program's own.
class Unobserved {
 public:
  Unobserved() : modes_(c10::python_ks | c10::autocast_dispatch_keyset) { ++depth; }
  ~Unobserved() { --depth; }
  Unobserved(const Unobserved&) = delete;  // counts
  Unobserved& operator=(const Unobserved&) = delete;

  [[nodiscard]] static bool here() { return depth > 0; }

 private:
  static thread_local int depth;
  c10::impl::ExcludeDispatchKeyGuard modes_;
};

// Keeps a storage's address from being reused without keeping its memory.
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

[[nodiscard]] WeakStorage weak_storage(const at::Tensor& tensor);
[[nodiscard]] const c10::StorageImpl* storage_of(const at::Tensor& tensor);

// Returns nothing for types that a trace cannot hold.
[[nodiscard]] std::optional<ElementType> element_type_of(const at::Tensor& tensor);

// Whether a tensor only wraps others (DTensor).
[[nodiscard]] bool is_wrapper(const at::Tensor& tensor);

// Why a tensor has no plain values to copy ("is a tensor subclass"), or empty. While the current
// stream of its device records a graph, no tensor has (kInGraph).
[[nodiscard]] std::string unreadable(const at::Tensor& tensor);

// Throws UsageError if the tensor of the parameter `path` is unreadable. `consequence` ends the
// sentence: "cannot be filled".
void require_readable(const std::string& path,
                      const at::Tensor& tensor,
                      std::string_view consequence);

[[nodiscard]] std::vector<std::int64_t> shape_of(const at::Tensor& tensor);

// Requires: unreadable(tensor) is empty and the element type is known. Copies at once: the program
// may overwrite the tensor right after. From an accelerator it copies what the current stream would
// read, and waits for that stream alone. Hooks record snapshot(), which does not wait.
[[nodiscard]] TensorCopy copy_tensor(const at::Tensor& tensor);

// Waits for all streams of the tensor's accelerator: for parameters before training, which any
// stream may have written. While a step runs, that would hide races of the program or block it.
void wait_for_device_of(const at::Tensor& tensor);

// Replaces the values of a tensor of any layout and device, without telling autograd. `bytes` are
// contiguous and of the tensor's own type. Its version is bumped as by any in-place operator. On an
// accelerator the current stream does it, and the call returns when it is done.
void overwrite_tensor(const at::Tensor& tensor, const std::vector<std::byte>& bytes);

// The identity of a value handed from one module to the next: the same bytes seen in the same
// way, not overwritten since.
struct TensorIdentity {
  WeakStorage storage;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t version = 0;

  explicit TensorIdentity(const at::Tensor& tensor);
  // Whether `tensor` is the same view; its values may have changed.
  [[nodiscard]] bool same_place(const at::Tensor& tensor) const;
  // The same, and nothing wrote to it since.
  [[nodiscard]] bool same_value(const at::Tensor& tensor) const;
};

// 0 for tensors that do not count their versions.
[[nodiscard]] std::int64_t version_of(const at::Tensor& tensor);

}  // namespace ttrace
