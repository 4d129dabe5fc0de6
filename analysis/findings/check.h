// A check is what one question answered about one tensor: a value, with the numbers it was decided
// by and a sentence where it fails.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include "analysis/findings/diagnosis.h"
#include "analysis/findings/symptom.h"
#include "analysis/findings/term.h"

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
  kLaw,             // T1: does it follow from the candidate's other records (law_check.h)?
  kRouting,         // T2: does round-off explain every other choice of experts?
  kTolerance,       // T2: is it within the tolerance that the user asked for?
  kWhole,           // T2: is the error of the whole tensor within its bound?
  kPart,            // T2: is that of its worst row, head or shard?
  kFactor,          // T2: is the factor between both sides?
  kTooAccurate,     // golden: is it nearer to FP64 than its precision can be?
  kTooCoarse,       // golden: is it farther from FP64 than its precision explains?
};

// The source of a bound; Check::source describes it in words.
enum class BoundOrigin : std::uint8_t { kExact, kNoise, kClassDefault, kAsked };

// "T0"; "operator_slice".
[[nodiscard]] std::string_view name_of(Tier tier);
[[nodiscard]] std::string_view name_of(Question question);
// For people: "its own operators, R".
[[nodiscard]] std::string_view words_of(Question question);

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
  std::vector<TermValue> terms;
  std::vector<ComponentValue> components;  // add up to the square of Term::kScale
  std::string sentence;                    // what is wrong; empty if the check holds
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
  // Throws InternalError if the check has no such term.
  [[nodiscard]] double term(Term term) const;
  [[nodiscard]] std::optional<double> find(Term term) const;
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
