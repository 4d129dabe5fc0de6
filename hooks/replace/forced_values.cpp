#include "hooks/replace/forced_values.h"

#include "hooks/replace/overlay.h"
#include "trace/merge/absent_addends.h"
#include "trace/merge/gradient_choice.h"
#include "trace/merge/settled_dims.h"
#include "trace/merge/summed_gradients.h"

#include <span>

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

// Settles what nobody declared as the comparison does.
SampleAlignment settle(const std::string& reference, const std::string& settled, Trace& candidate) {
  SampleAlignment samples;
  leave_out_absent_addends(candidate);
  if (reference.empty()) {
    place_summed_gradients(candidate);
    return samples;
  }
  const Trace beside = Trace::open(reference);
  samples = align_samples(beside, candidate);
  place_summed_gradients(candidate);
  if (!settled.empty()) {
    place_settled(read_settled_dims(settled), candidate);
  }
  settle_gradient_choices(beside, candidate);
  return samples;
}

}  // namespace

ForcedValues::ForcedValues(const std::string& candidate,
                           const std::string& reference,
                           const std::string& settled)
    : trace_(Trace::open(candidate)),
      samples_(settle(reference, settled, trace_)),
      shards_(trace_) {}

std::optional<std::vector<std::byte>> ForcedValues::value(const TensorId& id,
                                                          const Placement& placement,
                                                          const TensorCopy& own) const {
  const std::span<const Shard> shards = shards_.of(id);
  if (shards.empty() || !is_floating(own.type) || placement.partial_count > 1 ||
      samples_.is_unaligned(id)) {
    return std::nullopt;
  }
  const MergeResult candidate = merge(shards);
  if (!candidate.has_tensor() || candidate.shape != placement.logical_shape() ||
      !holds_all_rows(candidate, placement)) {
    return std::nullopt;  // the comparison of structure reports why
  }
  return overlay(own, placement, candidate);
}

}  // namespace ttrace
