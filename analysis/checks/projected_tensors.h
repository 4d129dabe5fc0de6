// The logical tensors of a trace as matrices: their projections, made once and kept in place of the
// elements.
//
// Thread-safety: one thread at a time.
#pragma once

#include "trace/base/tensor_id_hash.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/shard_index.h"
#include "trace/sums/projection.h"

#include <ttrace/tensor_id.h>

#include <memory>
#include <unordered_map>

namespace ttrace {

// Columns are its last dimension, rows all others.
struct ProjectedTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Projections projections;
};

class ProjectedTensors {
 public:
  // Keeps references to the trace's files.
  explicit ProjectedTensors(const Trace& trace) : shards_(trace) {}

  // Null where the tensor was not recorded, is no floating one of a dimension and elements, or its
  // parts make none. Throws FormatError for a damaged record.
  [[nodiscard]] const ProjectedTensor* find(const TensorId& id);
  // What ranks hold of it.
  [[nodiscard]] const ShardIndex& shards() const { return shards_; }

 private:
  ShardIndex shards_;
  std::unordered_map<TensorId, std::unique_ptr<ProjectedTensor>, TensorIdHash> known_;
};

}  // namespace ttrace
