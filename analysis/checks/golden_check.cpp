#include "analysis/checks/golden_check.h"

#include "analysis/bounds/bounds.h"
#include "analysis/bounds/spread.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/sums/statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace ttrace {
namespace {

// How much more, or less, another layout may err than the reference does: a rank's smaller sums are
// more accurate. In 22 clean runs of random layouts (15,941 tensors) the largest ratio came to 2.1
// times what chance explains, the smallest to 1.7 times:
// `ttrace_fuzz_layouts N SEED --precision P --golden --tries 0`, bf16 10 56101, f32 6 56102,
// fp8 6 56103.
constexpr double kKernelFactor = 3.0;
constexpr double kRoundings = 2.0;  // by which r must be off, where c may be too accurate
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
  double limit = 0.0;            // largest rho that passes

  [[nodiscard]] double rho() const { return candidate_error / reference_error; }
  [[nodiscard]] bool is_too_accurate() const { return rho() < least; }
  [[nodiscard]] bool is_too_coarse() const { return rho() > limit; }
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
  check.bound = golden.limit;
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
      least_error_(
          allowances.granted(Allowance::kGoldenRounding,
                             kRoundings * rounding_error(precision_of(precision_).stored))),
      shards_(golden) {}

std::vector<Check> GoldenCheck::compare(const Match& match,
                                        const MergeResult& reference,
                                        const MergeResult& candidate,
                                        const ErrorSpread& spread) const {
  const std::span<const Shard> shards = shards_.of(match.id);
  if (shards.empty() || !is_judged_in_fp64(match.id.kind) || !is_floating(reference.type) ||
      !is_floating(candidate.type)) {
    return {};
  }
  const MergeResult golden = merge(shards);
  if (!are_alike(golden, reference) || !are_alike(golden, candidate)) {
    return {};
  }
  const auto [of_reference, of_candidate] = statistics_of(golden, reference, candidate);
  // Other checks report NaN and Inf.
  if (!(of_reference.error_norm() > 0.0) || of_reference.candidate_nonfinite > 0 ||
      of_reference.reference_nonfinite > 0) {
    return {};
  }
  GoldenComparison result;
  result.reference_error = of_reference.error_norm();
  result.candidate_error = of_candidate.error_norm();
  const double of_step =
      spread.passes != nullptr ? spread.freedom : std::min(spread.freedom, Scatter().freedom());
  // An update flips its sign in one run and not in the other: one event, whatever it reaches.
  const double freedom = freedom_of_sum(spread.inherited, 1.0, of_step);
  result.limit = ratio_limit(kKernelFactor, freedom, freedom, spread.by_chance).value;
  if (result.reference_error > least_error_ * of_reference.reference_norm()) {
    result.least = 1.0 / result.limit;
  }
  return {accuracy_check(result, precision_), coarseness_check(result, precision_)};
}

}  // namespace ttrace
