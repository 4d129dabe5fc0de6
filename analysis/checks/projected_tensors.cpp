#include "analysis/checks/projected_tensors.h"

#include "trace/merge/merge.h"

#include <span>
#include <utility>

namespace ttrace {

const ProjectedTensor* ProjectedTensors::find(const TensorId& id) {
  const auto known = known_.find(id);
  if (known != known_.end()) {
    return known->second.get();
  }
  const std::span<const Shard> shards = shards_.of(id);
  std::unique_ptr<ProjectedTensor> result;
  if (!shards.empty() && is_floating(shards.front().record->type) &&
      !shards.front().record->placement.dims.empty()) {
    const MergeResult tensor = merge(shards);
    if (tensor.has_tensor() && !tensor.held && element_count(tensor.shape) > 0) {
      const std::int64_t columns = tensor.shape.back();
      const std::int64_t rows = element_count(tensor.shape) / columns;
      result = std::make_unique<ProjectedTensor>(ProjectedTensor{
          rows, columns, projections_of({tensor.type, tensor.bytes.data(), rows, columns})});
    }
  }
  return known_.emplace(id, std::move(result)).first->second.get();
}

}  // namespace ttrace
