#include "analysis/checks/operator_residual.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <string>

namespace ttrace {
namespace {

Check whole_check(const OperatorResidual& residual, double candidate_norm) {
  Check check;
  check.question = Question::kOperator;
  check.value = residual.residual();
  check.bound = residual.ratio.value;
  check.holds = !(check.value > check.bound);
  check.detectable = check.bound * residual.scale() / candidate_norm;
  check.origin = BoundOrigin::kNoise;
  check.source = "forced passes";
  check.terms = {{Term::kError, residual.error},
                 {Term::kScale, residual.scale()},
                 {Term::kQ, check.value},
                 {Term::kNative, residual.native},
                 {Term::kNorm, residual.norm},
                 {Term::kBitEqual, residual.bit_equal},
                 {Term::kUnlike, residual.unlike},
                 {Term::kFactor, residual.factor},
                 {Term::kNativeFactor, residual.native_factor}};
  if (std::isfinite(check.bound)) {
    add_terms(residual.ratio, check);
  }
  check.components = residual.yardstick.components();
  if (!check.holds) {
    check.sentence = fmt::format(
        "its operators are wrong: given the candidate's own inputs, the error is {}x the "
        "reference's rounding error (limit {})",
        short_number(check.value),
        short_number(check.bound));
  }
  return check;
}

Check part_check(const SliceComparison& slice, double candidate_norm) {
  Check check = check_of(slice, Question::kOperatorPart);
  check.detectable = slice.bound / candidate_norm;
  check.source =
      slice.is_addend ? "the rank's own rows, computed again" : "forced passes, in the part";
  if (!check.holds) {
    check.sentence = fmt::format(
        "{}{} is wrong: {}, the error is {}x {} (limit {}); the tensor as a whole is within its "
        "limit",
        slice.where,
        held_by(slice),
        slice.is_addend ? "computed again from the rank's own rows"
                        : "given the candidate's own inputs",
        short_number(slice.q),
        slice.is_addend ? "what round-off explains" : "the reference's rounding error",
        short_number(slice.bound * slice.q / slice.error));
  }
  return check;
}

Check factor_check(const FactorComparison& factor) {
  Check check = check_of(factor, Question::kOperatorFactor);
  check.source = factor.where.empty() ? "forced passes, along the result"
                                      : "the rank's own rows, computed again";
  if (!check.holds) {
    check.sentence = fmt::format(
        "{} {} times what the candidate's own inputs should give, but round-off explains a "
        "deviation of at most {}; the error as a whole is within its limit",
        factor.where.empty() ? "its operators return" : factor.where + " is",
        near_one_text(factor.deviation),
        short_number(factor.bound));
  }
  return check;
}

}  // namespace

double OperatorResidual::own() const {
  return std::max(native, least);
}

double OperatorResidual::residual() const {
  if (error == 0.0) {
    return 0.0;
  }
  return scale() == 0.0 ? std::numeric_limits<double>::infinity() : error / scale();
}

void OperatorResidual::leave_unjudged() {
  ratio.value = std::numeric_limits<double>::infinity();
  slice.reset();
  in_noise.reset();
  claim.reset();
}

std::vector<Check> checks_of(const OperatorResidual& residual, double candidate_norm) {
  std::vector<Check> checks = {whole_check(residual, candidate_norm)};
  if (residual.slice) {
    checks.push_back(part_check(*residual.slice, candidate_norm));
  }
  if (residual.in_noise) {
    checks.push_back(factor_check(*residual.in_noise));
  }
  for (Check& check : checks) {
    if (!check.holds) {
      check.claim = residual.claim;
    }
  }
  return checks;
}

}  // namespace ttrace
