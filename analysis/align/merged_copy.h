// A merged tensor that owns its bytes, for who changes them. Copies of a MergeResult are made on
// purpose only, because `bytes` may lie in a trace.
#pragma once

#include "trace/merge/merge.h"

namespace ttrace {

// Requires: the tensor holds all its rows (`held` is nothing).
[[nodiscard]] inline MergeResult copy_of(const MergeResult& tensor) {
  MergeResult copy;
  copy.type = tensor.type;
  copy.shape = tensor.shape;
  copy.storage.assign(tensor.bytes.begin(), tensor.bytes.end());
  copy.bytes = copy.storage;
  return copy;
}

}  // namespace ttrace
