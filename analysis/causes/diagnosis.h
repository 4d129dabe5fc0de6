// From what is wrong with one tensor to its probable cause.
//
// A finding says that a tensor is wrong and by how much. A signature is a hypothesis about how it
// came about: "every rank holds its own addend", "one micro-batch is missing", "the bias was added
// tp times". Each is tried on the records beside the finding; it counts only where it explains the
// error down to what round-off leaves. The first that does is the diagnosis, with the coefficients
// that were fitted. No signature: no diagnosis, and the report says only where to look.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

class Evidence;

enum class Signature : std::uint8_t {
  kStale,              // equals an earlier value bit for bit, or another micro-batch's
  kLocalNorm,          // a norm over the tensors of one rank
  kMissingReduction,   // ranks hold their own addends
  kRepeatedReduction,  // summed more often than once
  kMissingMicrobatch,  // a micro-batch's addend is not in the sum
  kWrongAddends,       // a sum with other coefficients
  kRepeatedBias,       // bias added more than once
  kWrongFactor,        // candidate = a x reference
  kWrongOrder,         // blocks of the right values in the wrong places
  kLocalised,          // only some rows, columns or tokens are wrong
  kReplicasDiverge,    // copies differ and nothing else explains it
  kShifted,            // slices of the reference, some places on
  kWrongView,          // a transpose, or dimensions that were read the other way round
  kZeroBlock,          // nothing was written to a block
  kDuplicatedBlock,    // two ranks hold one part where the reference has two
  kBoundary,           // only at the edges between ranks' parts
  kConstantBias,       // a number added everywhere, per row or per column; rounding of one sign
  kExtraRounding,      // numbers of a lower format
  kHigherPrecision,    // a rounding of the recipe is missing
  kPositions,          // rotary positions, base or pairs
  kAttention,          // scale of scores, causal mask
  kOtherVariant,       // another activation or norm of the same family
  kFp8Scale,           // a scale made from another magnitude or for another format
  kOptimizer,          // weight decay, learning rate, bias correction, betas, epsilon
  kLossNormalisation,  // what is made of right losses of tokens
  kWrongLayer,         // what another layer has
  kNonFinite,          // NaN or Inf
  kRoutingFlip,        // choices of experts that round-off does not explain
  kRecompute,          // a forward that ran again and did not repeat itself
  kSource,             // tokens, labels or first parameters differ already
};

// "missing_reduction"
[[nodiscard]] std::string_view name_of(Signature signature);

struct Diagnosis {
  Signature signature = Signature::kReplicasDiverge;
  std::string sentence;  // what was fitted, and what it means
};

// What lies beside the finding decides; see signatures.h for each hypothesis.
[[nodiscard]] std::optional<Diagnosis> diagnose(const Evidence& evidence);

}  // namespace ttrace
