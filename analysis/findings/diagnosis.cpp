#include "analysis/findings/diagnosis.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ttrace {
namespace {

using SignatureName = std::pair<Signature, std::string_view>;
constexpr auto kSignatureNames = std::to_array<SignatureName>({
    {Signature::kStale, "stale"},
    {Signature::kLocalNorm, "local_norm"},
    {Signature::kMissingReduction, "missing_reduction"},
    {Signature::kRepeatedReduction, "repeated_reduction"},
    {Signature::kMissingMicrobatch, "missing_microbatch"},
    {Signature::kWrongAddends, "wrong_addends"},
    {Signature::kRepeatedBias, "repeated_bias"},
    {Signature::kWrongFactor, "wrong_factor"},
    {Signature::kWrongOrder, "wrong_order"},
    {Signature::kLocalised, "localised"},
    {Signature::kReplicasDiverge, "replicas_diverge"},
    {Signature::kShifted, "shifted"},
    {Signature::kWrongView, "wrong_view"},
    {Signature::kZeroBlock, "zero_block"},
    {Signature::kDuplicatedBlock, "duplicated_block"},
    {Signature::kBoundary, "boundary"},
    {Signature::kConstantBias, "constant_bias"},
    {Signature::kExtraRounding, "extra_rounding"},
    {Signature::kHigherPrecision, "higher_precision"},
    {Signature::kPositions, "positions"},
    {Signature::kAttention, "attention"},
    {Signature::kOtherVariant, "other_variant"},
    {Signature::kLocalStatistics, "local_statistics"},
    {Signature::kFp8Scale, "fp8_scale"},
    {Signature::kOptimizer, "optimizer"},
    {Signature::kLossNormalisation, "loss_normalisation"},
    {Signature::kWrongLayer, "wrong_layer"},
    {Signature::kNonFinite, "non_finite"},
    {Signature::kRoutingFlip, "routing_flip"},
    {Signature::kRandomNumbers, "random_numbers"},
    {Signature::kRecompute, "recompute"},
    {Signature::kSource, "source"},
});

}  // namespace

std::string_view name_of(Signature signature) {
  const auto found = std::ranges::find(kSignatureNames, signature, &SignatureName::first);
  TTRACE_CHECK(found != kSignatureNames.end(), InternalError, "a signature has no name");
  return found->second;
}

}  // namespace ttrace
