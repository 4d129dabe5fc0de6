// A trace's records by id: of every tensor what each rank holds.
//
// Thread-safety: immutable; call from any thread.
#pragma once

#include "trace/base/tensor_id_hash.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <span>
#include <unordered_map>
#include <vector>

namespace ttrace {

class ShardIndex {
 public:
  // Keeps references to the trace's files.
  explicit ShardIndex(const Trace& trace);

  // The shards in the order of the ranks; empty if the trace does not have the tensor.
  [[nodiscard]] std::span<const Shard> of(const TensorId& id) const;

 private:
  std::unordered_map<TensorId, std::vector<Shard>, TensorIdHash> shards_;
};

}  // namespace ttrace
