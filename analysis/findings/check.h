// A check is what one question answered about one tensor: a value, with the numbers it was decided
// by and a sentence where it fails.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include "analysis/findings/diagnosis.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// T0: structure, nothing is tolerated. T1: its own operators are right, whatever came before. T2:
// as close to the reference as round-off explains. T3: equal, where no operator rounds. Golden: as
// far from the truth as its precision makes it.
enum class Tier : std::uint8_t { kT0, kT1, kT2, kT3, kGolden };

// A question about a tensor. The order is the order of precedence: the first failed check decides
// the tier, the symptom and the status of a tensor, and its sentence is reported first. What is
// wrong in T0 or T3 needs no other explanation; operators that are wrong explain why an error is
// large, and both explain a distance from FP64. The table in check.cpp says the rest.
enum class Question : std::uint8_t {
  kPresence,        // T0: did both sides record it?
  kStructure,       // T0: do the ranks' parts make one tensor?
  kType,            // T0: are the element types equal?
  kFormat,          // T0: are the codes of an FP8 operand numbers of one format?
  kRecompute,       // T0: is a recomputed value the first one?
  kDraws,           // T0: do ranks draw different random numbers for different parts?
  kShape,           // T0: are the logical shapes equal?
  kRows,            // T0: do both sides hold the same rows of a sparse dimension?
  kMessage,         // T0: is what was received what was sent?
  kCollective,      // T0: does a collective return what its inputs make?
  kSource,          // T0: is an input what the module before returned?
  kFinite,          // T0: are NaN and Inf at the same places?
  kNorm,            // T0: is a norm that of the tensors it is made from?
  kMean,            // T0: is a mean that of the tensor it is made from?
  kCast,            // T0: is a parameter its high-precision copy, rounded?
  kExact,           // T0: is what must be equal equal?
  kDyadic,          // T3: are sums of small integers equal?
  kOperator,        // T1: do its operators make it of the candidate's own inputs?
  kOperatorPart,    // T1: the same of its worst row, head, shard or addend
  kOperatorFactor,  // T1: the same of a factor that all elements have in common
  kRouting,         // T2: does round-off explain every other choice of experts?
  kTolerance,       // T2: is it within the tolerance that the user asked for?
  kWhole,           // T2: is the error of the whole tensor within its bound?
  kPart,            // T2: is that of its worst row, head or shard?
  kFactor,          // T2: is the factor between both sides?
  kTooAccurate,     // golden: is it nearer to FP64 than its precision can be?
  kTooCoarse,       // golden: is it farther from FP64 than its precision explains?
};

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

// The source of a bound; Check::source describes it in words.
enum class BoundOrigin : std::uint8_t { kExact, kNoise, kClassDefault, kAsked };

// "T0"; "operator_slice"; "replicas_disagree", "none".
[[nodiscard]] std::string_view name_of(Tier tier);
[[nodiscard]] std::string_view name_of(Question question);
[[nodiscard]] std::string_view name_of(Symptom symptom);

// When the bound of a check is the bound of its whole tensor. Of several such checks, one that
// failed and is kIfItFails comes first, then the one that stands last in the order of precedence.
enum class GivesBound : std::uint8_t { kNever, kIfItFails, kAlways };

[[nodiscard]] Tier tier_of(Question question);
[[nodiscard]] GivesBound gives_bound(Question question);
// Whether the question is about the size of an error. Structure or NaN, for example, are not.
[[nodiscard]] bool is_about_size(Question question);

// The part of the tensor that a check is about; empty: the whole tensor, on all ranks that hold it.
struct CheckedPart {
  std::string where;       // "rows 17:18 of dimension 0"
  std::vector<int> ranks;  // candidate's
};

// A number that a check was decided by.
struct Term {
  std::string_view name;  // a literal
  double value = 0.0;
};

struct Check {
  Question question = Question::kStructure;
  bool holds = true;
  Symptom narrower = Symptom::kNone;  // where it fails, if its question has several symptoms
  double value = 0.0;                 // compared with the bound; 0 if there are no numbers
  double bound = 0.0;                 // largest value that passes; of kTooAccurate the smallest
  double detectable = 0.0;  // smallest error that fails, relative to the tensor's norm; 0: unknown
  BoundOrigin origin = BoundOrigin::kExact;
  std::string source;  // of the bound: "5 noise passes x 2 (default limit)"
  CheckedPart place;
  std::vector<Term> terms;
  std::string sentence;                  // what is wrong; empty if the check holds
  std::optional<Hypothesis> claim = {};  // why, where the numbers that the check was made of say so
  // Of a copy: the candidate's record that it must be equal to.
  std::optional<TensorId> original = {};

  [[nodiscard]] Tier tier() const { return tier_of(question); }
  // kNone if it holds.
  [[nodiscard]] Symptom symptom() const;
  // Whether value and bound are numbers. Checks of presence or shape have none.
  [[nodiscard]] bool has_numbers() const;
  // |value| / bound, of kTooAccurate bound / value; 0 if the value is 0, Inf where only the
  // bound is. Without numbers 0 if it holds, else Inf.
  [[nodiscard]] double share() const;
  // 0 for a name that the check has no term of.
  [[nodiscard]] double term(std::string_view name) const;
  [[nodiscard]] bool has_term(std::string_view name) const;
};

// Whether an error as large as the tensor itself would have failed. Requires: a check of a size.
[[nodiscard]] bool is_sharp(const Check& check);

// A check without numbers that holds.
[[nodiscard]] Check passed(Question question, std::string source);
// A check that fails for what it is, without numbers.
[[nodiscard]] Check failed(Question question, std::string sentence, std::vector<int> ranks = {});

// Puts a check behind those of its question and of earlier ones, so that checks stay sorted.
void insert_check(std::vector<Check>& checks, Check check);

// Whether a report has the sentence of `check`, one of `checks`, in whatever order they were made.
// Only failed checks speak. The first failed one of whole, part and factor speaks for the others.
// Coarseness is reported only if nothing else fails. Requires: sorted checks.
[[nodiscard]] bool speaks(const std::vector<Check>& checks, const Check& check);

}  // namespace ttrace
