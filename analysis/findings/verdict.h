// The verdict on one tensor: its checks, and what excuses those that failed. Tier, status, symptom
// and cause are functions of the two lists, so that the order in which checks ran cannot matter.
// All four read the check that decides: the first failed one in the order of precedence (check.h).
//
// Thread-safety: plain values.
#pragma once

#include "analysis/findings/check.h"
#include "analysis/findings/codes.h"
#include "analysis/findings/tensor_class.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

enum class Status : std::uint8_t {
  kWithin,
  kDiverged,
  kMissingInCandidate,
  kMissingInReference,
  kIncomplete,  // a step of the trace was interrupted before all of it was written; not judged
  kBehindFlip,  // differs, but behind a choice of experts that differs: no bound knows of that
  kInherited,   // beyond what noise explains, but its own operators are right
  kNotJudged,   // nothing says what it should be, or something else answers for it: see its excuse
};

// "within", "missing_in_candidate".
[[nodiscard]] std::string_view name_of(Status status);
// Whether the status says how the tensor stands to its bounds.
[[nodiscard]] bool is_judged(Status status);

// Why a failed check is not a finding, or why a tensor is not judged. Of several excuses the
// earlier one decides the status. The last three are permissions: a tensor stays wrong, but is no
// finding.
enum class Excuse : std::uint8_t {
  kInterrupted,  // not all of it was written
  kRounds,       // with dyadic inputs: the reference itself rounds here
  kCopied,       // one side alone recorded it, because it copies what a module returned
  kReplaced,     // the same in a pass whose values were replaced: no record shows what it should be
  kOneSided,     // a gradient of what is an alias, or needs no gradient, on the other side; a state
                 // or a buffer that the other program does not keep
  kUnaligned,    // nothing says which of the candidate's samples are in it
  kOtherData,    // the programs read other data, and the reference does not repeat its own
  kNotFinite,    // no element is finite on both sides
  kNoBound,      // round-off explains an error as large as the tensor itself
  kHarmlessScale,  // another scale of an FP8 operand, by a power of two that changes no code
  kBehindFlip,     // tokens before it go to other experts
  kRandom,         // random numbers before it could not be followed
  kInherited,      // its own operators are right, and the error came with their inputs
  kAllowed,        // the user permits it
  kUntraced,       // the candidate's program declares that it cannot give it
  kDeclared,       // the rename map lets it be missing
};

// "behind_flip"
[[nodiscard]] std::string_view name_of(Excuse excuse);

struct Excused {
  Excuse excuse = Excuse::kAllowed;
  std::string sentence;  // empty if the name says it all
};

// Candidate c next to reference r, both whole logical tensors. Norms are Frobenius norms over the
// elements that are finite on both sides.
struct Comparison {
  double error = 0.0;                   // ||c - r||
  double reference_norm = 0.0;          // ||r||
  double candidate_norm = 0.0;          // ||c||
  double relative_error = 0.0;          // error / ||r||; 0 if both are 0, Inf if only ||r|| is
  double factor = 0.0;                  // alpha = <c, r> / <r, r>; NaN where ||r|| is 0
  double max_difference = 0.0;          // max |c - r|
  std::vector<std::int64_t> max_index;  // its logical index; empty for scalars and equal tensors
  std::int64_t different = 0;           // elements that are not equal
  bool is_estimate = false;             // from sketches: what single elements are is not known
  std::int64_t elements = 0;
  std::int64_t nonfinite = 0;  // NaN or Inf in the reference: not compared
  std::int64_t nan = 0;        // of them, those that are NaN on both sides
  // Tokens that chose the same experts in another order, where the tensor has one value per choice:
  // c is in the reference's order.
  std::int64_t reordered = 0;
};

struct TensorVerdict {
  TensorId id;
  // Order number of the reference's record. A tensor that only the candidate has carries the number
  // of the next one of its rank that the reference has too, and stands before it.
  std::uint64_t order = 0;
  std::vector<int> holders;   // candidate's ranks that hold it
  std::vector<Check> checks;  // sorted, see insert_check()
  std::vector<Excused> excuses;
  TensorClass tensor_class = TensorClass::kActivation;  // whose limits it was judged by
  bool is_in_reference = true;                          // the reference recorded it
  bool is_given = false;                 // data, or what the model takes: no operator computed it
  std::optional<Comparison> comparison;  // absent if no two tensors could be laid side by side
  // The FP8 codes of an operand, or of a scale that differs, where both were recorded.
  std::optional<CodesComparison> codes = {};

  void add(Check check);
  void excuse(Excuse excuse, std::string sentence = "");

  // Null if the question was not asked; of several checks of one question the first.
  [[nodiscard]] const Check* find(Question question) const;
  [[nodiscard]] bool has(Excuse excuse) const;
  [[nodiscard]] bool fails(Question question) const;
  // Requires: Status::kNotJudged.
  [[nodiscard]] std::string_view why_not_judged() const;

  [[nodiscard]] Tier tier() const;
  [[nodiscard]] Status status() const;
  [[nodiscard]] Symptom symptom() const;
  // What is wrong, a sentence for every failed check that speaks, the deciding one first. What an
  // excuse says stands before them. Empty where nothing failed and no excuse says anything.
  [[nodiscard]] std::vector<std::string> causes() const;
  [[nodiscard]] std::string cause() const;  // all of them in one line
  // Candidate's ranks concerned: those that the deciding check names, else all that hold it.
  [[nodiscard]] std::vector<int> ranks() const;
  // What the first failed check that has a claim says of the cause; null if none has.
  [[nodiscard]] const Hypothesis* claim() const;
  // Something is wrong, but it is permitted, so that it is no finding.
  [[nodiscard]] bool allowed() const;
  [[nodiscard]] bool is_finding() const;
  // Whether a check failed that no excuse covers, other than the user's permission.
  [[nodiscard]] bool is_wrong() const;

  // The check that the tensor's own bound belongs to; null for a tensor that was not judged.
  [[nodiscard]] const Check* principal() const;
  [[nodiscard]] BoundOrigin origin() const;
  [[nodiscard]] std::string bound_source() const;
  [[nodiscard]] double bound() const;       // on ||c - r||; 0: equal
  [[nodiscard]] double detectable() const;  // bound() / ||r||
  // error / bound(), or the worst element's under a tolerance asked for.
  [[nodiscard]] double ratio() const;

  // The failed check that decides, whether or not an excuse covers it; null if nothing failed.
  [[nodiscard]] const Check* deciding() const;
  // The check that the status rests on: the deciding one, or, of a tensor within its bounds, the
  // one nearest to its bound. An inherited tensor is no finding because its operators are right, so
  // it rests on the nearest of their checks. Null where no check was made, and for a scale that is
  // beyond its bounds and harmless.
  [[nodiscard]] const Check* ruling() const;
  // How near the nearest check is to its bound, or how far beyond; 0 where there is none.
  [[nodiscard]] double largest_share() const;
  // Noise passes moved the tensor too little: it is beyond the bound from them, although a golden
  // pass shows it to be as accurate as the reference.
  [[nodiscard]] bool has_too_little_noise() const;

 private:
  // Whether it is a failed check that speaks, but of a presence that is answered by a copy.
  [[nodiscard]] bool counts_as_failure(const Check& check) const;
  [[nodiscard]] bool is_answered_by_copy(const Check& check) const;
};

// Whether the tensor was judged, and not only let be missing.
[[nodiscard]] bool is_answered(const TensorVerdict& tensor);

// Whether the reference's own operators are more than 1 % off in their precision, because a kernel
// reduces in it: smaller errors of the candidate go unseen. `operators` is a check kOperator.
[[nodiscard]] bool is_weak(const Check& operators);

}  // namespace ttrace
