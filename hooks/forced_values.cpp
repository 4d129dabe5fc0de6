#include "forced_values.h"

#include "overlay.h"

namespace ttrace {
namespace {

// Rows of experts that only one side has are nobody's to take.
bool holds_all_rows(const MergeResult& candidate, const Placement& placement) {
  if (!candidate.held) {
    return true;
  }
  IndexSet wanted;
  for (const Segment& segment : placement.dims[candidate.held->dim].segments) {
    wanted.push_back({segment.logical, segment.logical + segment.extent});
  }
  return difference(normalised(std::move(wanted)), candidate.held->rows).empty();
}

}  // namespace

ForcedValues::ForcedValues(const std::string& candidate) : trace_(Trace::open(candidate)) {
  for (const StepTrace& step : trace_.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Record& record : file.records()) {
        shards_[record.id].push_back({file.layout().rank, &record, file.bytes(record)});
      }
    }
  }
}

std::optional<std::vector<std::byte>> ForcedValues::value(const TensorId& id,
                                                          const Placement& placement,
                                                          const TensorCopy& own) const {
  const auto found = shards_.find(id);
  if (found == shards_.end() || !is_floating(own.type) || placement.partial_count > 1) {
    return std::nullopt;
  }
  const MergeResult candidate = merge(found->second);
  if (!candidate.has_tensor() || candidate.shape != placement.logical_shape() ||
      !holds_all_rows(candidate, placement)) {
    return std::nullopt;  // the comparison of structure tells why
  }
  return overlay(own, placement, candidate);
}

}  // namespace ttrace
