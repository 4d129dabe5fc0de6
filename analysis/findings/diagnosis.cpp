#include "analysis/findings/diagnosis.h"

#include <ttrace/error.h>

namespace ttrace {

std::string_view name_of(Signature signature) {
  switch (signature) {
    case Signature::kStale:
      return "stale";
    case Signature::kLocalNorm:
      return "local_norm";
    case Signature::kMissingReduction:
      return "missing_reduction";
    case Signature::kRepeatedReduction:
      return "repeated_reduction";
    case Signature::kMissingMicrobatch:
      return "missing_microbatch";
    case Signature::kWrongAddends:
      return "wrong_addends";
    case Signature::kRepeatedBias:
      return "repeated_bias";
    case Signature::kWrongFactor:
      return "wrong_factor";
    case Signature::kWrongOrder:
      return "wrong_order";
    case Signature::kLocalised:
      return "localised";
    case Signature::kReplicasDiverge:
      return "replicas_diverge";
    case Signature::kShifted:
      return "shifted";
    case Signature::kWrongView:
      return "wrong_view";
    case Signature::kZeroBlock:
      return "zero_block";
    case Signature::kDuplicatedBlock:
      return "duplicated_block";
    case Signature::kBoundary:
      return "boundary";
    case Signature::kConstantBias:
      return "constant_bias";
    case Signature::kExtraRounding:
      return "extra_rounding";
    case Signature::kHigherPrecision:
      return "higher_precision";
    case Signature::kPositions:
      return "positions";
    case Signature::kAttention:
      return "attention";
    case Signature::kOtherVariant:
      return "other_variant";
    case Signature::kFp8Scale:
      return "fp8_scale";
    case Signature::kOptimizer:
      return "optimizer";
    case Signature::kLossNormalisation:
      return "loss_normalisation";
    case Signature::kWrongLayer:
      return "wrong_layer";
    case Signature::kNonFinite:
      return "non_finite";
    case Signature::kRoutingFlip:
      return "routing_flip";
    case Signature::kRecompute:
      return "recompute";
    case Signature::kSource:
      return "source";
  }
  TTRACE_THROW(InternalError, "no signature has the number ", static_cast<int>(signature));
}

}  // namespace ttrace
