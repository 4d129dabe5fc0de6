// The symptoms of failed checks: the one table of their names and descriptions.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ttrace {

// The symptom of a failed check.
enum class Symptom : std::uint8_t {
  kNone,
  kMissing,           // on one side
  kRanksContradict,   // ranks claim different shapes or types
  kGap,               // elements that no rank holds
  kOverlap,           // elements claimed twice
  kReplicasDisagree,  // copies differ
  kAddendsMissing,    // fewer partial sums than declared
  kShapesDiffer,      // logical shapes of the two sides
  kTypesDiffer,       // element types of the two sides
  kRowsDiffer,        // rows of a sparse dimension that the two sides hold
  kNonFinite,         // NaN or Inf on one side
  kNotEqual,          // must be equal and is not
  kIllegalFlip,       // experts chosen that round-off does not explain
  kRecompute,         // a recomputed value is not the first one
  kSameDraws,         // ranks drew the same random numbers for different parts of a tensor
  kMessage,           // received is not what was sent
  kCollective,        // a collective returns what its inputs do not make
  kNorm,              // a norm is not that of the tensors it is made from
  kMean,              // a mean is not that of the tensor it is made from
  kCast,              // a parameter is not its high-precision copy, rounded
  kFactor,            // candidate = factor x reference explains the error
  kSlice,             // within bound as a whole, but not in a slice, a head or a shard
  kOutOfBound,        // any other error beyond the bound
  kOperator,          // its operators are wrong, given the candidate's own inputs
  kSource,            // an input is not what the module before has returned
  kNotExact,          // of small integers not the sums that it must be
  kTooAccurate,       // nearer to the golden pass than its precision can be
  kTooCoarse,         // farther from the golden pass than its precision explains
};

struct SymptomTraits {
  Symptom symptom;
  std::string_view name;         // for programs: "replicas_disagree"
  std::string_view rule;         // of SARIF: "ReplicasDisagree"; empty: no check has it
  std::string_view description;  // for people, a sentence
};

// All of them, each at its number.
[[nodiscard]] std::span<const SymptomTraits> symptoms();
[[nodiscard]] std::string_view name_of(Symptom symptom);

}  // namespace ttrace
