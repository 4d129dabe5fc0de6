#include "fake_device/host_alias.h"

#include <c10/core/TensorImpl.h>

namespace ttrace::testing::fake {
namespace {

constexpr c10::DispatchKeySet kKernelIncludes(c10::DispatchKey::BackendSelect);
constexpr c10::DispatchKeySet kKernelExcludes =
    c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView;

}  // namespace

KernelScope::KernelScope() : keys_(kKernelIncludes, kKernelExcludes) {}

at::Tensor HostAliases::of(const at::Tensor& tensor) {
  c10::StorageImpl* const storage =
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const c10::Storage* shared = nullptr;
  for (const auto& [known, alias] : storages_) {
    shared = known == storage ? &alias : shared;
  }
  if (shared == nullptr) {
    storages_.emplace_back(storage,
                           c10::Storage(c10::Storage::use_byte_size_t(),
                                        storage->nbytes(),
                                        c10::DataPtr(storage->mutable_data(), at::kCPU),
                                        nullptr,
                                        false));
    shared = &storages_.back().second;
  }
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(*shared), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl* const impl = alias.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  alias._set_neg(tensor.is_neg());
  alias._set_conj(tensor.is_conj());
  return alias;
}

}  // namespace ttrace::testing::fake
