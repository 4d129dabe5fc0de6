// What a comparison of two traces found, and the three ways to write it down.
//
// Thread-safety: plain values; the writers only read.
#pragma once

#include "analysis/align/unmatched.h"
#include "analysis/bounds/limits.h"
#include "analysis/bounds/tolerance.h"
#include "analysis/causes/diagnosis.h"
#include "trace/file/manifest.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// T0: structure, nothing is tolerated. T1: its own operators are right, whatever came before. T2:
// as close to the reference as round-off explains. T3: equal, where no operator rounds. Golden: as
// far from the truth as its precision makes it.
enum class Tier : std::uint8_t { kT0, kT1, kT2, kT3, kGolden };

enum class Status : std::uint8_t {
  kWithin,
  kDiverged,
  kMissingInCandidate,
  kMissingInReference,
  kIncomplete,  // not all there, because a step of the trace was interrupted; not judged
  kBehindFlip,  // differs, but behind a choice of experts that differs: no bound knows of that
  kInherited,   // beyond what noise explains, but what its own operators make of their inputs
  kNotJudged,   // with dyadic inputs: the reference itself rounds here
};

// Where a bound came from, for the counts; TensorVerdict::bound_source says it in words.
enum class BoundOrigin : std::uint8_t { kExact, kNoise, kClassDefault, kAsked };

// What a finding looks like; the first of several that a tensor shows.
enum class Symptom : std::uint8_t {
  kNone,
  kMissing,           // on one side; Status says on which
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
  kMessage,           // received is not what was sent
  kCollective,        // a collective returns what its inputs do not make
  kNorm,              // a norm is not that of the tensors it is made from
  kMean,              // a mean is not that of the tensor it is made from
  kFactor,            // candidate = factor x reference explains the error
  kSlice,             // within bound as a whole, but not in a slice, a head or a shard
  kOutOfBound,        // any other error beyond the bound
  kOperator,          // not what its operators make of the candidate's own inputs
  kSource,            // an input is not what the module before has returned
  kNotExact,          // of small integers not the sums that it must be
  kTooAccurate,       // nearer to the golden pass than its precision can be
  kTooCoarse,         // farther from the golden pass than its precision explains
};

// "T0"; "within", "missing_in_candidate"; "replicas_disagree", "none".
[[nodiscard]] std::string_view name_of(Tier tier);
[[nodiscard]] std::string_view name_of(Status status);
[[nodiscard]] std::string_view name_of(Symptom symptom);

// The part of a tensor that is farthest beyond the noise there, or nearest to its bound; see
// slices.h.
struct SliceComparison {
  std::string where;       // "rows 17:18 of dimension 0"
  std::vector<int> ranks;  // candidate's, that hold it
  double error = 0.0;      // ||c - r|| over it
  double q = 0.0;          // error over its own noise scale
  double bound = 0.0;
  double slice_q = 0.0;    // largest of any row or index of a dimension
  double row_q = 0.0;      // largest of any row, where rows have a limit of their own
  double group_q = 0.0;    // largest of any head, shard or addend
  bool is_addend = false;  // of a sum over ranks, against what the rank's own rows give

  [[nodiscard]] bool beyond() const { return error > bound; }
};

// alpha - 1 against what it is in noise passes; see Bounds::of_factor.
struct FactorComparison {
  double deviation = 0.0;  // <c - r, r> / <r, r>
  double scale = 0.0;      // its noise
  double bound = 0.0;      // the larger of limit x scale and `least`, and what is granted
  double least = 0.0;      // what the candidate's own spread asks for, whatever the limit
  double granted = 0.0;    // by no noise: see operator_check.h
  std::string where = {};  // of which part, "the addend of rank 3"; empty: of the whole tensor

  [[nodiscard]] bool beyond() const { return deviation > bound || deviation < -bound; }
  // The limit that it takes to be within bound; 0 where none is needed.
  [[nodiscard]] double needed_limit() const;
};

// What a bound from noise is made of, so that a report can show it; bounds.h says why. `growth`
// multiplies s^2, `limit` the scale, `largest_pass` is max_k ||m_k - r||; all others are squares.
struct NoiseTerms {
  double mean_squared = 0.0;  // s^2
  double growth = 1.0;        // where micro-batches err partly alike
  double optimizer = 0.0;     // flips of an update's sign
  double inherited = 0.0;     // from parameters that an update has changed
  double of_scales = 0.0;     // of quantised operands
  double of_scalars = 0.0;    // one more rounding of a scalar
  double least = 0.0;         // of the sum so far, where the candidate computed a multiple
  double flips = 0.0;         // (2 ulp(max |r|))^2
  double limit = 0.0;
  double largest_pass = 0.0;
  double pass_margin = 0.0;  // the bound is at least this times the largest pass
  int passes = 0;

  [[nodiscard]] double squared_without_flips() const;
};

// The same of a bound without noise: factor x unit x ||r||.
struct DefaultTerms {
  double factor = 0.0;
  double unit = 0.0;
};

// Candidate c against reference r, both whole logical tensors. Norms are Frobenius norms over the
// elements that are finite on both sides.
struct Comparison {
  double error = 0.0;                   // ||c - r||
  double reference_norm = 0.0;          // ||r||
  double candidate_norm = 0.0;          // ||c||
  double relative_error = 0.0;          // error / ||r||; 0 if both are 0, Inf if only ||r|| is
  double bound = 0.0;                   // largest error that passes
  double detectable = 0.0;              // bound / ||r||: smaller relative errors go unseen
  std::optional<double> q;              // error over the noise scale; absent without noise
  double factor = 0.0;                  // alpha = <c, r> / <r, r>; NaN where ||r|| is 0
  double max_difference = 0.0;          // max |c - r|
  std::vector<std::int64_t> max_index;  // its logical index; empty for scalars and equal tensors
  std::int64_t different = 0;           // elements that are not equal
  std::int64_t elements = 0;
  std::optional<SliceComparison> slice;             // absent where slices are not judged
  std::optional<FactorComparison> factor_in_noise;  // absent where factors are not judged
  // Where the user gave a tolerance, it decides, and `bound` is the largest error it can admit.
  std::optional<ToleranceCheck> asked;
  std::optional<NoiseTerms> noise_terms;      // of a bound above zero that came from noise
  std::optional<DefaultTerms> default_terms;  // of a class default

  // error / bound, or the worst element's under a tolerance asked for; 0 where the error is 0, Inf
  // where only the bound is.
  [[nodiscard]] double ratio() const;
};

// What a tensor's own operators got wrong; see operator_check.h. Norms are Frobenius norms.
struct OperatorResidual {
  double error = 0.0;          // ||c - f||
  double native = 0.0;         // ||n - f||
  double rounding = 0.0;       // u ||c||
  double structure = 0.0;      // e
  double norm = 0.0;           // ||f||
  double bit_equal = 0.0;      // part of the elements in which c is n
  double limit = 0.0;          // largest R that passes; Inf: any
  double factor = 0.0;         // <c, f> / <f, f>
  double native_factor = 0.0;  // <n, f> / <f, f>
  // Of a tensor that has slices, or of a vector that is a sum of ranks' addends.
  std::optional<SliceComparison> slice = {};
  std::optional<FactorComparison> in_noise = {};
  std::optional<Diagnosis> told = {};  // where the check of addends knows the cause

  [[nodiscard]] double scale() const;
  // The reference's own operators are more than 1 % off in their precision, because a kernel
  // reduces in it: smaller errors of the candidate go unseen.
  [[nodiscard]] bool is_weak() const { return native > 0.01 * norm; }
  // R; 0 where the error is 0, Inf where only the scale is.
  [[nodiscard]] double residual() const;
  [[nodiscard]] bool is_within() const {
    return residual() <= limit && !(slice && slice->beyond()) && !(in_noise && in_noise->beyond());
  }
  // Keeps the figures of the whole, of which any is within.
  void leave_unjudged();
};

// Candidate and reference against the same in FP64, g; see golden_check.h. Frobenius norms.
struct GoldenComparison {
  double candidate_error = 0.0;  // ||c - g||
  double reference_error = 0.0;  // ||r - g||, above 0
  double scale = 0.0;            // the same, or what a rounding does to g where that is more
  double least = 0.0;            // smallest rho that passes; 0: not judged
  double limit = 0.0;            // largest candidate_error / scale that passes; 0: not judged

  [[nodiscard]] double rho() const { return candidate_error / reference_error; }
  [[nodiscard]] bool is_too_accurate() const { return rho() < least; }
  [[nodiscard]] bool is_too_coarse() const {
    return limit > 0.0 && candidate_error > limit * scale;
  }
  [[nodiscard]] bool is_within() const { return !is_too_accurate() && !is_too_coarse(); }
};

// Tokens that go to another set of experts than in the reference; see routing_check.h.
struct RoutingFlips {
  std::int64_t tokens = 0;
  std::int64_t flips = 0;
  std::int64_t illegal = 0;   // of them, those that round-off does not explain
  double largest_move = 0.0;  // by how much scores moved at least, over all flips
  double bound = 0.0;         // what round-off explains of that
  bool margins_known = false;
  std::int64_t worst_token = -1;  // the illegal one whose scores moved most, and its experts
  std::vector<std::int64_t> reference_experts;
  std::vector<std::int64_t> candidate_experts;
};

// FP8 codes of an operand on one side.
struct SideCodes {
  ElementType format = ElementType::kE4M3;  // or kE5M2
  std::int64_t saturated = 0;               // at the largest number of the format
  std::int64_t zero = 0;
};

// The codes of an operand on both sides; see codes_check.h.
struct CodesComparison {
  std::int64_t elements = 0;
  std::int64_t equal = 0;  // in bits, powers of two between scales taken out; 0: other formats
  SideCodes reference;
  SideCodes candidate;
  std::int64_t scales = 0;
  std::int64_t multiples = 0;      // of them, those that are 2^k times the reference's, k not 0
  bool are_powers_of_two = false;  // all scales are the reference's times 2^k, 0 included
  bool harmless = false;           // of a scale: it differs, and loses nothing
};

struct TensorVerdict {
  TensorId id;
  // Order number of the reference's record. A tensor that only the candidate has carries the number
  // of the next one of its rank that the reference has too, and stands before it.
  std::uint64_t order = 0;
  Tier tier = Tier::kT2;
  Status status = Status::kWithin;
  BoundOrigin origin = BoundOrigin::kExact;
  TensorClass tensor_class = TensorClass::kActivation;  // whose limits it was judged by
  std::string bound_source;                             // "5 noise passes x 2 (default limit)"
  std::optional<RoutingFlips> flips;                    // of choices of experts; then no comparison
  std::optional<OperatorResidual> residual;             // absent without forced passes
  std::optional<GoldenComparison> golden;               // absent without a golden pass
  // Of operands, and of scales that differ, where both were recorded.
  std::optional<CodesComparison> codes = {};
  std::optional<Comparison> comparison;  // absent where no two tensors could be laid side by side
  std::vector<int>
      ranks;  // candidate's ranks concerned: those that disagree, else all that hold it
  Symptom symptom = Symptom::kNone;
  std::string cause;                   // one sentence for a finding, else empty
  std::optional<Diagnosis> told = {};  // where the check that found it knows the cause
  bool allowed = false;                // a difference that the user permits; never a finding

  [[nodiscard]] bool is_finding() const {
    return !allowed && status != Status::kWithin && status != Status::kIncomplete &&
           status != Status::kBehindFlip && status != Status::kInherited &&
           status != Status::kNotJudged;
  }
  // Beyond its bounds, and within all the same, because its codes say so.
  [[nodiscard]] bool is_harmless_scale() const { return codes && codes->harmless; }
};

// One of the two traces.
struct Side {
  std::string directory;
  Manifest manifest;
};

// Allowed tensors are counted as such only.
struct Counts {
  std::size_t tensors = 0;
  std::size_t within_bound = 0;
  std::size_t out_of_bound = 0;
  std::size_t missing_in_candidate = 0;
  std::size_t missing_in_reference = 0;
  std::size_t allowed_failed = 0;
  std::size_t allowed_missing = 0;
  std::size_t incomplete = 0;
  std::size_t behind_flip = 0;
  std::size_t bounds_from_noise = 0;
  std::size_t bounds_exact = 0;
  std::size_t bounds_class_default = 0;
  std::size_t bounds_asked = 0;
  std::size_t operators = 0;  // tensors whose own operators were checked
  std::size_t operators_wrong = 0;
  std::size_t inherited = 0;  // beyond what noise explains, with operators that are right
  std::size_t golden = 0;     // tensors that were compared with the golden pass
  std::size_t too_accurate = 0;
  std::size_t too_coarse = 0;
  std::size_t must_be_equal = 0;  // with dyadic inputs
  std::size_t not_judged = 0;     // the same
};

// Inputs of modules that are, in the reference, what another module returned; see edge_check.h.
struct EdgeCoverage {
  std::size_t edges = 0;
  std::size_t checked = 0;  // of them, those that were found in the candidate
};

// What the report says of limits that are calibrated; see calibration.h.
struct CalibrationUse {
  std::size_t runs = 0;
  double rate = 0.0;        // of runs that alarm falsely, as stated
  double rate_bound = 0.0;  // the same as far as the runs alone show it, with 95 % confidence
  std::vector<std::string> shipped;  // limits used here that its runs said nothing about
};

// A finding with a cause of its own; see roots.h.
struct Root {
  std::size_t tensor = 0;              // index into Report::tensors
  std::optional<Diagnosis> diagnosis;  // where a signature explains it
};

struct Report {
  Side reference;
  Side candidate;
  int noise_passes = 0;
  bool has_residuals = false;  // forced passes were there
  bool has_golden = false;     // a golden pass was there
  bool is_dyadic = false;      // of made-up inputs: only what no operator rounds is judged
  EdgeCoverage edges;
  std::optional<CalibrationUse> calibration;  // absent: all limits are the shipped ones
  std::vector<std::string> remarks;           // what differs without forbidding the comparison
  std::vector<std::string> notes;      // what the programs themselves noted, by side, rank and step
  std::vector<TensorVerdict> tensors;  // all selected, in the reference's execution order
  std::size_t left_out = 0;            // by the selection
  std::vector<std::string> warnings;   // options that applied to nothing
  // Of missing tensors that are not allowed, where both sides have some or one was renamed.
  std::vector<UnmatchedName> unmatched;
  // What the interrupted steps of either side lack; anything here makes the verdict a partial one.
  std::vector<std::string> lacking;
  std::optional<std::size_t> first_divergence;  // index into `tensors`
  std::optional<Diagnosis> diagnosis;           // of the first divergence, where one explains it
  std::string where_to_look;                    // for the first divergence
  std::vector<Root> further_roots;              // behind the first divergence, in order
  std::size_t roots_left_out = 0;               // behind them

  [[nodiscard]] bool diverged() const { return first_divergence.has_value(); }
  // The reference went on with the candidate's choices of experts.
  [[nodiscard]] bool follows_candidate() const {
    return !reference.manifest.forced_routing.empty();
  }
  [[nodiscard]] bool partial() const { return !lacking.empty(); }
  // Nothing diverged, but something differs behind a flip: nobody knows.
  [[nodiscard]] bool undecided() const;
  [[nodiscard]] Counts counts() const;
  // Over all choices of experts; nothing where none were recorded. `bound` and `largest_move` are
  // those of the flip nearest to its bound, or beyond it.
  [[nodiscard]] std::optional<RoutingFlips> flips() const;
};

struct TextOptions {
  bool color = false;         // of the verdict words
  std::size_t max_rows = 20;  // of the table of findings
};

// For people: verdict, first divergence, then only what differs, then counts.
void write_text(std::ostream& out, const Report& report, const TextOptions& options);

// For programs: every tensor, numbers that round-trip, NaN and Inf as strings. One line per tensor.
void write_json(std::ostream& out, const Report& report);

// For CI servers: JUnit's XML, in the dialect that Jenkins, GitLab and GitHub's actions read. A
// suite is a module, a test one of its tensors, named by its id; findings have failed, what was not
// judged, is inherited or allowed is skipped. The suite of the first divergence comes first. Where
// the verdict covers only a part, one test more, `whole trace is judged`, is an error. The bytes
// depend on the report alone.
void write_junit(std::ostream& out, const Report& report);

}  // namespace ttrace
