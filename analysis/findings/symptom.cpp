#include "analysis/findings/symptom.h"

#include "trace/base/table_of_enum.h"

#include <array>
#include <cstddef>

namespace ttrace {
namespace {

constexpr auto kSymptoms = std::to_array<SymptomTraits>({
    {Symptom::kNone, "none", "", ""},
    {Symptom::kMissing, "missing", "MissingTensor", "Only one of the two runs recorded a tensor."},
    {Symptom::kRanksContradict,
     "ranks_contradict",
     "RanksContradict",
     "Ranks claim different shapes or types of one tensor."},
    {Symptom::kGap, "gap", "Gap", "No rank holds some elements of a tensor."},
    {Symptom::kOverlap, "overlap", "Overlap", "Two shards claim the same elements of a tensor."},
    {Symptom::kReplicasDisagree,
     "replicas_disagree",
     "ReplicasDisagree",
     "Copies of a tensor differ."},
    {Symptom::kAddendsMissing,
     "addends_missing",
     "AddendsMissing",
     "Fewer partial sums were recorded than were declared."},
    {Symptom::kShapesDiffer,
     "shapes_differ",
     "ShapesDiffer",
     "The two runs have tensors of different shapes."},
    {Symptom::kTypesDiffer,
     "types_differ",
     "TypesDiffer",
     "The two runs have tensors of different types."},
    {Symptom::kRowsDiffer,
     "rows_differ",
     "RowsDiffer",
     "The two runs hold different rows of a tensor."},
    {Symptom::kNonFinite,
     "non_finite",
     "NonFinite",
     "Only one of the two runs has NaN or Inf at a place."},
    {Symptom::kNotEqual, "not_equal", "NotEqual", "Tensors that must be equal differ."},
    {Symptom::kIllegalFlip,
     "illegal_flip",
     "OtherExperts",
     "Tokens go to other experts than round-off explains."},
    {Symptom::kRecompute,
     "recompute_differs",
     "Recompute",
     "A recomputed value is not the first one."},
    {Symptom::kSameDraws,
     "same_draws",
     "SameDraws",
     "Ranks drew the same random numbers for different parts of a tensor."},
    {Symptom::kMessage, "message_differs", "Message", "What a rank received is not what was sent."},
    {Symptom::kCollective,
     "collective_wrong",
     "Collective",
     "A collective returns something else than its inputs make."},
    {Symptom::kNorm,
     "norm_wrong",
     "Norm",
     "A norm is not that of the tensors from which it is made."},
    {Symptom::kMean,
     "mean_wrong",
     "Mean",
     "A mean is not that of the tensor from which it is made."},
    {Symptom::kCast,
     "not_its_master",
     "Cast",
     "A parameter is not its high-precision copy, rounded to the parameter's type."},
    {Symptom::kFactor, "factor", "Factor", "A tensor is a multiple of what it should be."},
    {Symptom::kSlice,
     "slice_out_of_bound",
     "Slice",
     "A row, a head or a shard of a tensor differs by more than round-off explains."},
    {Symptom::kOutOfBound,
     "out_of_bound",
     "OutOfBound",
     "A tensor differs by more than round-off explains."},
    {Symptom::kOperator,
     "operator",
     "Operator",
     "Given the same inputs, an operator returns something else than in the reference."},
    {Symptom::kSource,
     "other_source",
     "OtherInput",
     "A module takes something else than what the module before it returned."},
    {Symptom::kNotExact, "not_exact", "NotExact", "A sum of small integers is wrong."},
    {Symptom::kTooAccurate,
     "too_accurate",
     "TooAccurate",
     "A tensor is more accurate than its precision can be."},
    {Symptom::kTooCoarse,
     "too_coarse",
     "TooCoarse",
     "A tensor is less accurate than its precision explains."},
});

static_assert(has_a_row_for_each(kSymptoms, &SymptomTraits::symptom, Symptom::kTooCoarse));

}  // namespace

std::span<const SymptomTraits> symptoms() {
  return kSymptoms;
}

std::string_view name_of(Symptom symptom) {
  return kSymptoms.at(static_cast<std::size_t>(symptom)).name;
}

}  // namespace ttrace
