#include "analysis/checks/golden_check.h"

#include "analysis/bounds/bounds.h"
#include "analysis/bounds/limits.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/sums/statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

namespace ttrace {
namespace {

// In F32 only sums err, and their errors depend on how a layout cuts them: a rank's smaller sums
// are more accurate, by about the square root of the number of ranks.
constexpr double kLeastInF32 = 0.4;  // of what it is otherwise
constexpr double kRoundings = 2.0;   // by which r must be off, where c may be too accurate
// ||c - r|| <= (1 + rho) ||r - g||: what is as accurate as the reference cannot be farther from it
// than that, so a bound that this breaks was too small. `ttrace explain` says so; no verdict
// follows.
constexpr double kAsAccurate = 2.0;

// Only values of the graph are judged, not what an optimizer computes from them.
bool is_judged_in_fp64(Kind kind) {
  return is_of_graph(kind) || kind == Kind::kLoss;
}

// Candidate and reference against the same in FP64, g; see golden_check.h. Frobenius norms.
struct GoldenComparison {
  double candidate_error = 0.0;  // ||c - g||
  double reference_error = 0.0;  // ||r - g||, above 0
  double least = 0.0;            // smallest rho that passes; 0: not judged
  double limit = 0.0;            // largest rho that passes; 0: not judged

  [[nodiscard]] double rho() const { return candidate_error / reference_error; }
  [[nodiscard]] bool is_too_accurate() const { return rho() < least; }
  [[nodiscard]] bool is_too_coarse() const { return limit > 0.0 && rho() > limit; }
  [[nodiscard]] bool is_as_accurate() const {
    return !is_too_accurate() && !is_too_coarse() && rho() <= kAsAccurate;
  }
};

Check accuracy_check(const GoldenComparison& golden, const std::string& precision) {
  Check check;
  check.question = Question::kTooAccurate;
  check.value = golden.rho();
  check.bound = golden.least;
  check.holds = !golden.is_too_accurate();
  check.origin = BoundOrigin::kNoise;
  check.source = "golden pass, the least that round-off leaves";
  if (!check.holds) {
    const Precision& own = precision_of(precision);
    const std::string recipe = quantises_operands(own)         ? "is FP8 active here?"
                               : own.wider == kGoldenPrecision ? "does it compute in FP64 here?"
                                                               : "is autocast active here?";
    check.sentence = fmt::format(
        "it computes in higher precision than {}: its error against FP64 is only {}x the "
        "reference's, although round-off leaves at least {}x; {}",
        precision,
        short_number(golden.rho()),
        short_number(golden.least),
        recipe);
  }
  return check;
}

Check coarseness_check(const GoldenComparison& golden, const std::string& precision) {
  Check check;
  check.question = Question::kTooCoarse;
  check.value = golden.rho();
  check.bound = golden.limit > 0.0 ? golden.limit : std::numeric_limits<double>::infinity();
  check.holds = !golden.is_too_coarse();
  check.origin = BoundOrigin::kNoise;
  check.source = "golden pass, the most that round-off explains";
  check.terms = {{Term::kRho, golden.rho()},
                 {Term::kCandidateError, golden.candidate_error},
                 {Term::kReferenceError, golden.reference_error},
                 {Term::kLeastRho, golden.least},
                 {Term::kLargestRho, golden.limit},
                 {Term::kIsAsAccurate, golden.is_as_accurate() ? 1.0 : 0.0}};
  if (!check.holds) {
    check.sentence = fmt::format(
        "it computes in lower precision than {}, or wrongly: its error against FP64 is {}x the "
        "reference's (limit {})",
        precision,
        short_number(check.value),
        short_number(golden.limit));
  }
  return check;
}

}  // namespace

GoldenCheck::GoldenCheck(const Trace& golden, std::string precision, const Allowances& allowances)
    : precision_(std::move(precision)),
      of_sums_(precision_of(precision_).stored == ElementType::kF32),
      unit_(rounding_error(precision_of(precision_).stored)),
      allowances_(allowances),
      shards_(golden) {
  first_step_ = golden.steps().empty() ? 0 : golden.steps().front().step;
}

std::vector<Check> GoldenCheck::compare(const Match& match,
                                        const MergeResult& reference,
                                        const MergeResult& candidate) const {
  const std::span<const Shard> shards = shards_.of(match.id);
  const std::int64_t least = allowances_.has(Allowance::kFewGoldenElements) ? kFewElements : 1;
  if (shards.empty() || !is_judged_in_fp64(match.id.kind) || !is_floating(reference.type) ||
      !is_floating(candidate.type) || element_count(reference.shape) < least) {
    return {};
  }
  const MergeResult golden = merge(shards);
  const auto of_reference = statistics_where_alike(golden, reference);
  const auto of_candidate = statistics_where_alike(golden, candidate);
  // Other checks report NaN and Inf.
  if (!of_reference || !of_candidate || !(of_reference->error_norm() > 0.0) ||
      of_reference->candidate_nonfinite > 0 || of_reference->reference_nonfinite > 0) {
    return {};
  }
  GoldenComparison result;
  result.reference_error = of_reference->error_norm();
  result.candidate_error = of_candidate->error_norm();
  const TensorClass tensor_class = class_of(match.id, golden.shape.size());
  if (match.id.step == first_step_ || !allowances_.has(Allowance::kFirstGoldenStep)) {
    const double roundings = allowances_.granted(Allowance::kGoldenRoundings, kRoundings);
    const bool of_sums = of_sums_ && allowances_.has(Allowance::kLeastRhoOfSums);
    result.limit = largest_rho(tensor_class, allowances_);
    if (result.reference_error > roundings * unit_ * of_reference->reference_norm()) {
      result.least = least_rho(tensor_class, allowances_) * (of_sums ? kLeastInF32 : 1.0);
    }
  }
  return {accuracy_check(result, precision_), coarseness_check(result, precision_)};
}

}  // namespace ttrace
