// Which memory holds values that code outside of the dispatcher made, in noise passes.
//
// A noise pass moves the results of dispatched operators. A kernel that no dispatcher calls
// (functions of TransformerEngine, code of Triton and Inductor, numpy) leaves values without noise.
// We recognise such values because no operator wrote to their memory, whether an operator allocated
// it or none did. The result of an operator that does not round is as opaque as its input.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/tensor_access.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace ttrace {

enum class Origin : std::uint8_t {
  kEmpty,   // allocated, and no operator wrote to it
  kZeros,   // the same, but for zeros
  kKnown,   // an operator wrote to it, or the program gave it from outside
  kOpaque,  // some of its values come from code that was not seen, and have no noise
};

// What an operator reads, but for scalars.
struct OpaqueReads {
  bool values = false;  // any at all
  bool opaque = false;  // some of them have an origin that was not seen
};

class Origins {
 public:
  // Nothing for memory that was not met so far. Zeros that changed unseen are opaque. REQUIRES: the
  // tensor has a storage.
  [[nodiscard]] std::optional<Origin> of(const at::Tensor& tensor) const;
  // Of all of the tensor's storage.
  void set(const at::Tensor& tensor, Origin origin);
  // The same where the memory was not met so far.
  void set_if_new(const at::Tensor& tensor, Origin origin);

 private:
  struct Entry {
    WeakStorage storage;
    Origin origin = Origin::kKnown;
  };
  void forget_expired();

  static constexpr std::size_t kFewEntries = 4096;

  std::unordered_map<const c10::StorageImpl*, Entry> by_storage_;
  std::size_t tidy_at_ = kFewEntries;
};

}  // namespace ttrace
