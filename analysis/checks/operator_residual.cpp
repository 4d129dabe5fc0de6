#include "analysis/checks/operator_residual.h"

#include "analysis/findings/wording.h"

#include <cmath>
#include <limits>
#include <string>

namespace ttrace {
namespace {

// "- 0.001"
std::string signed_text(double value) {
  return (value < 0.0 ? "- " : "+ ") + short_number(std::abs(value));
}

Check whole_check(const OperatorResidual& residual, double candidate_norm) {
  Check check;
  check.question = Question::kOperator;
  check.value = residual.residual();
  check.bound = residual.limit;
  check.holds = !(check.value > check.bound);
  check.detectable = residual.limit * residual.scale() / candidate_norm;
  check.origin = BoundOrigin::kNoise;
  check.source = "forced passes";
  check.terms = {{"error", residual.error},
                 {"native", residual.native},
                 {"rounding", residual.rounding},
                 {"structure", residual.structure},
                 {"scale", residual.scale()},
                 {"norm", residual.norm},
                 {"bit_equal", residual.bit_equal},
                 {"factor", residual.factor},
                 {"native_factor", residual.native_factor}};
  if (!check.holds) {
    check.symptom = Symptom::kOperator;
    check.sentence = "not what its operators make of the candidate's own inputs: they err " +
                     short_number(check.value) + "x as much as in the reference, where " +
                     short_number(check.bound) + "x passes";
  }
  return check;
}

Check part_check(const SliceComparison& slice, double candidate_norm) {
  Check check = check_of(slice, Question::kOperatorPart);
  check.detectable = slice.bound / candidate_norm;
  check.source = slice.is_addend ? "the rank's own rows, computed again"
                                 : "what forced passes differ by in the part";
  if (!check.holds) {
    check.symptom = Symptom::kOperator;
    const std::string errs = slice.is_addend
                                 ? " is not what the rank's own rows give: it errs " +
                                       short_number(slice.q) + "x as much as round-off makes it"
                                 : " is not what the operators make of the candidate's own "
                                   "inputs: it errs " +
                                       short_number(slice.q) + "x as much as in the reference";
    check.sentence = slice.where + held_by(slice) + errs + ", where " +
                     short_number(slice.bound * slice.q / slice.error) +
                     "x passes; the tensor as a whole is within that";
  }
  return check;
}

Check factor_check(const FactorComparison& factor) {
  Check check = check_of(factor, Question::kOperatorFactor);
  check.source = factor.where.empty() ? "the factor between forced passes"
                                      : "the rank's own rows, computed again";
  if (!check.holds) {
    check.symptom = Symptom::kOperator;
    const std::string times = "(1 " + signed_text(factor.deviation) + ") times ";
    const std::string what = factor.where.empty()
                                 ? "its operators make " + times + "of what they should of"
                                 : factor.where + " is " + times + "what the operators make of";
    check.sentence = what + " the candidate's own inputs, where round-off explains up to " +
                     short_number(factor.bound) +
                     "; the error as a whole is within that of round-off";
  }
  return check;
}

}  // namespace

double OperatorResidual::scale() const {
  return std::hypot(std::max(native, rounding), structure);
}

double OperatorResidual::residual() const {
  if (error == 0.0) {
    return 0.0;
  }
  return scale() == 0.0 ? std::numeric_limits<double>::infinity() : error / scale();
}

void OperatorResidual::leave_unjudged() {
  limit = std::numeric_limits<double>::infinity();
  slice.reset();
  in_noise.reset();
  known_cause.reset();
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
      check.known_cause = residual.known_cause;
    }
  }
  return checks;
}

}  // namespace ttrace
