// What a candidate's tensors were: a forced pass goes on with these after it has recorded its own.
//
// What such a pass computes for a tensor is then what the operators before it make of the
// candidate's own values, and differs from the candidate's only by what those operators themselves
// got wrong: nothing is inherited from further up.
//
// Thread-safety: use under the lock of Capture. Constructed before the writer thread exists,
// because it reads HDF5 files; afterwards only their mappings.
#pragma once

#include "tensor_copy.h"

#include <ttrace/merge.h>
#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>
#include <ttrace/tensor_id_hash.h>
#include <ttrace/trace_reader.h>

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ttrace {

class ForcedValues {
 public:
  // Throws FormatError where the trace cannot be read.
  explicit ForcedValues(const std::string& candidate);

  // What takes the place of `own`, which lies at `placement`. Nothing where the candidate has no
  // such tensor or one of another shape, and for what is no floating-point number: the program then
  // goes on with its own.
  [[nodiscard]] std::optional<std::vector<std::byte>> value(const TensorId& id,
                                                            const Placement& placement,
                                                            const TensorCopy& own) const;

 private:
  Trace trace_;
  std::unordered_map<TensorId, std::vector<Shard>, TensorIdHash> shards_;
};

}  // namespace ttrace
