// The probable cause of a finding: which hypothesis explains it, and what it claims.
//
// Thread-safety: plain values and a free function without shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

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
  kLocalStatistics,    // a norm over samples that takes each rank's own
  kFp8Scale,           // a scale made from another magnitude or for another format
  kOptimizer,          // weight decay, learning rate, bias correction, betas, epsilon
  kLossNormalisation,  // what is made of right losses of tokens
  kWrongLayer,         // what another layer has
  kNonFinite,          // NaN or Inf
  kRoutingFlip,        // choices of experts that round-off does not explain
  kRandomNumbers,      // draws that should be equal, or should differ
  kRecompute,          // a forward that ran again and did not repeat itself
  kSource,             // tokens, labels or first parameters differ already
};

// "missing_reduction"
[[nodiscard]] std::string_view name_of(Signature signature);

// The claims of a diagnosis for programs; the sentence says the same to people. A list is empty if
// the diagnosis claims nothing of its kind.
struct Named {
  std::vector<std::string> axes = {};  // of the candidate's layout: "tp"
  std::vector<double> factors = {};    // what was fitted: coefficients of addends, a factor
  std::vector<int> ranks = {};         // of the candidate, that are wrong
  std::vector<std::int64_t> microbatches = {};  // that are absent, or taken for another one
};

// Another hypothesis that explains the finding nearly as well.
struct Alternative {
  Signature signature = Signature::kReplicasDiverge;
  std::string sentence;
};

struct Diagnosis {
  Signature signature = Signature::kReplicasDiverge;
  std::string sentence;  // what was fitted, and what it means
  Named named = {};
  std::optional<Alternative> runner_up = {};  // of another signature
};

// One explanation of a finding, and what it costs to believe it: of the causes that are tried
// afterwards, or one that a check met while it judged.
struct Hypothesis {
  Signature signature = Signature::kReplicasDiverge;
  std::string sentence = {};
  Named named = {};
  // Norms over what was looked at: of the error, and of what the hypothesis leaves of it. Equal
  // where it explains nothing of the numbers and only names who is to be asked.
  double error = 1.0;
  double residual = 0.0;
  double coefficients = 0.0;  // free numbers; an element that is only located counts as one
  double bits = 0.0;          // of the choice among hypotheses that are equally simple
};

}  // namespace ttrace
