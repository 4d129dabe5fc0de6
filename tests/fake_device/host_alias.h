// Device memory seen as CPU tensors, for kernels that run later.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

namespace ttrace::testing::fake {

// The dispatch keys of tensors on a fake device.
constexpr c10::DispatchKeySet kFakeKeys(c10::DispatchKey::PrivateUse1);

// Makes CPU tensors that know the memory of device tensors by its address only, and do not keep it:
// the program may free it while work is pending, and the order of the stream makes that right.
// Tensors of one storage become tensors of one storage, because kernels ask whether arguments
// overlap.
class HostAliases {
 public:
  [[nodiscard]] at::Tensor of(const at::Tensor& tensor);

 private:
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages_;
};

// While it lives, this thread's operators are those of a kernel: neither autograd, autocast and
// modes nor the program's observers see them.
class KernelScope {
 public:
  KernelScope();

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::DisableRecordFunctionGuard unobserved_;
};

}  // namespace ttrace::testing::fake
