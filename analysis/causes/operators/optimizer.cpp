// AdamW read back from its own records, side by side. With m and v the moments after the step,
//   before - after = (lr wd) before + (lr sqrt(c2) / c1) m / (sqrt(v) + e),  c = 1 - beta^t,
//   m = beta1 m' + (1 - beta1) g,   v = beta2 v' + (1 - beta2) g^2,
// so that two coefficients per tensor tell weight decay, learning rate and bias correction, or beta
// and the factor of the gradient; the e that leaves least is the epsilon. What they are on the
// reference's side is what they should be.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"

#include <boost/math/tools/minima.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using Column = std::vector<double>;

constexpr double kExplained = 0.02;  // of the update's norm may be left: masters are rounded
constexpr double kEqual = 1e-3;      // relative, on top of three standard errors
// Another epsilon is one if the reference's leaves so many times as much of the update. Clean runs
// leave 1.0 times as much: the epsilon of both is the best for both.
constexpr double kOtherEpsilon = 1.5;

std::optional<Values> value_of(const Evidence& evidence,
                               Kind kind,
                               std::int64_t step,
                               WhichRun run) {
  TensorId id = as_kind(evidence.finding().id, kind);
  id.step = step;
  return evidence.value(id, run);
}

// Where the denominator's epsilon stands.
enum class Epsilon { kOutside, kInside };

Column direction(const Values& m, const Values& v, double epsilon, Epsilon where) {
  Column result(m.data.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double squared = std::max(0.0, v.data[i]);
    const double denominator =
        where == Epsilon::kOutside ? std::sqrt(squared) + epsilon : std::sqrt(squared + epsilon);
    result[i] = denominator > 0.0 ? m.data[i] / denominator : 0.0;
  }
  return result;
}

// One side's update of the parameter, at sampled elements.
struct Update {
  Values before;
  Column change;  // before - after
  Values m;
  Values v;
};

std::optional<Update> update_of(const Evidence& evidence, WhichRun run) {
  const std::int64_t step = evidence.finding().id.step;
  auto before = value_of(evidence, Kind::kMaster, step - 1, run);
  if (!before) {
    before = value_of(evidence, Kind::kParam, step, run);
  }
  const auto after = value_of(evidence, evidence.finding().id.kind, step, run);
  auto m = value_of(evidence, Kind::kExpAvg, step, run);
  auto v = value_of(evidence, Kind::kExpAvgSq, step, run);
  if (!before || !after || !m || !v || before->shape != after->shape || m->shape != before->shape ||
      v->shape != before->shape) {
    return std::nullopt;
  }
  constexpr std::size_t kSampled = 65536;
  const std::size_t stride = std::max<std::size_t>(1, after->data.size() / kSampled) | 1U;
  Update update;
  for (std::size_t i = 0; i < after->data.size(); i += stride) {
    update.before.data.push_back(before->data[i]);
    update.change.push_back(before->data[i] - after->data[i]);
    update.m.data.push_back(m->data[i]);
    update.v.data.push_back(v->data[i]);
  }
  return update;
}

struct Reading {
  Fit fit;  // of weight decay and of the step along m / sqrt(v)
  std::vector<Column> columns;
  double epsilon = 0.0;  // 0: it does not show next to sqrt(v)
};

std::optional<Reading> read_with(const Update& update, double epsilon, Epsilon where) {
  std::vector<Column> columns = {update.before.data, direction(update.m, update.v, epsilon, where)};
  auto found = fit(columns, update.change);
  return found ? std::optional(Reading{*std::move(found), std::move(columns), epsilon})
               : std::nullopt;
}

// With the epsilon that leaves least: none, which is what one that is nothing next to sqrt(v) reads
// as, or the best of each two decades. Nothing where no epsilon explains the update.
std::optional<Reading> read(const Update& update, Epsilon where) {
  constexpr double kSmallest = -14.0;  // powers of ten
  constexpr double kLargest = 0.0;
  constexpr double kWidth = 2.0;
  constexpr int kBits = 12;  // of an exponent
  std::optional<Reading> best = read_with(update, 0.0, where);
  const auto rest = [&](double exponent) {
    const auto found = read_with(update, std::pow(10.0, exponent), where);
    return found ? found->fit.residual : std::numeric_limits<double>::infinity();
  };
  for (double low = kSmallest; best && low < kLargest; low += kWidth) {
    const auto [exponent, left] =
        boost::math::tools::brent_find_minima(rest, low, low + kWidth, kBits);
    if (left < 0.99 * best->fit.residual) {
      best = read_with(update, std::pow(10.0, exponent), where);
    }
  }
  const bool explained = best && best->fit.residual <= kExplained * norm(update.change);
  return explained ? std::move(best) : std::nullopt;
}

bool same(const Fit& left, const Fit& right, std::size_t i) {
  const double deviation = std::hypot(left.deviations[i], right.deviations[i]);
  return std::abs(left.coefficients[i] - right.coefficients[i]) <=
         std::max(3.0 * deviation, kEqual * std::abs(right.coefficients[i]));
}

std::string fitted(const Fit& fit, std::size_t i) {
  return short_number(fit.coefficients[i]) + " +- " + short_number(fit.deviations[i]);
}

// sqrt(1 - beta2^t) / (1 - beta1^t)
double correction(double beta1, double beta2, double t) {
  return std::sqrt(1.0 - std::pow(beta2, t)) / (1.0 - std::pow(beta1, t));
}

// What a step of `ratio` times the right size comes from, under usual betas.
std::string meaning_of_step(double ratio, double t) {
  constexpr double kSame = 0.005;
  constexpr std::array kSecond = {0.95, 0.98, 0.99, 0.999};
  const auto is = [&](double expected) { return std::abs(ratio - expected) <= kSame * expected; };
  for (const double beta2 : kSecond) {
    const double right = correction(0.9, beta2, t);
    const std::string betas = " with betas 0.9 and " + short_number(beta2);
    if (is(1.0 / right)) {
      return ": what is left without bias correction" + betas;
    }
    if (is(correction(0.9, beta2, t + 1.0) / right)) {
      return ": bias correction of the next step" + betas;
    }
    if (t > 1.0 && is(correction(0.9, beta2, t - 1.0) / right)) {
      return ": bias correction of the step before" + betas;
    }
  }
  return "";
}

std::string decay_text(const Fit& candidate, const Fit& reference) {
  const double right = reference.coefficients[0];
  const double found = candidate.coefficients[0];
  const std::string values = "weight decay takes " + fitted(candidate, 0) +
                             " of the parameter off, in the reference " + fitted(reference, 0);
  const double small = 3.0 * std::max(candidate.deviations[0], reference.deviations[0]);
  if (std::abs(found) <= small) {
    return values + ": it is missing";
  }
  if (std::abs(right) <= small) {
    return values + ": it is applied to a parameter that should have none";
  }
  return values + ": " + factor_text(found / right) + " times as much";
}

std::string step_text(const Evidence& evidence, const Fit& candidate, const Fit& reference) {
  const double ratio = candidate.coefficients[1] / reference.coefficients[1];
  const double deviation =
      std::abs(ratio) * std::hypot(candidate.deviations[1] / candidate.coefficients[1],
                                   reference.deviations[1] / reference.coefficients[1]);
  const auto t = static_cast<double>(evidence.finding().id.step + 1);
  const std::string meaning = meaning_of_step(ratio, t);
  return "the step along m / sqrt(v) is a x the reference's, a = " +
         (meaning.empty() ? explain_factor(evidence, ratio, deviation) +
                                ": the learning rate, or a bias correction"
                          : factor_text(ratio) + " +- " + short_number(deviation) + meaning);
}

// A moment from its value before and the gradient, or its square.
std::optional<Fit> read_moment(const Evidence& evidence, WhichRun run) {
  const TensorId& id = evidence.finding().id;
  const auto after = value_of(evidence, id.kind, id.step, run);
  const auto before = value_of(evidence, id.kind, id.step - 1, run);
  auto gradient = value_of(evidence, Kind::kMainGrad, id.step, run);
  if (!after || !before || !gradient || before->shape != after->shape ||
      gradient->shape != after->shape) {
    return std::nullopt;
  }
  if (id.kind == Kind::kExpAvgSq) {
    for (double& value : gradient->data) {
      value *= value;
    }
  }
  const std::array columns = {before->data, gradient->data};
  auto found = fit(columns, after->data);
  return found && found->residual <= kExplained * after->norm() ? std::move(found) : std::nullopt;
}

// What the coefficients of the candidate say that the reference's do not; `error` is what the
// reference's leave of the candidate.
Hypotheses differing(const std::string& read_back,
                     const std::vector<std::string>& said,
                     const Fit& candidate,
                     double error) {
  if (said.empty()) {
    return {};
  }
  return {{.signature = Signature::kOptimizer,
           .sentence = fmt::format("{}: {}", read_back, fmt::join(said, "; ")),
           .named = {.factors = candidate.coefficients},
           .error = std::max(candidate.residual, error),
           .residual = candidate.residual,
           .coefficients = static_cast<double>(said.size())}};
}

std::string epsilon_text(double epsilon) {
  return epsilon > 0.0 ? "about " + short_number(epsilon) : "too small to show";
}

Hypotheses of_update(const Evidence& evidence) {
  const auto reference = update_of(evidence, WhichRun::kReference);
  const auto candidate = update_of(evidence, WhichRun::kCandidate);
  const auto right = reference ? read(*reference, Epsilon::kOutside) : std::nullopt;
  if (!right || !candidate) {
    return {};
  }
  std::vector<std::string> said;
  auto found = read(*candidate, Epsilon::kOutside);
  if (!found) {
    found = read(*candidate, Epsilon::kInside);
    said.emplace_back("epsilon stands inside the root of the denominator");
  }
  const auto by_reference = read_with(*candidate, right->epsilon, Epsilon::kOutside);
  if (!found || !by_reference) {
    return {};
  }
  if (said.empty() && by_reference->fit.residual > kOtherEpsilon * found->fit.residual) {
    said.push_back(
        fmt::format("e of the denominator sqrt(v) + e is {}, in the reference {}: "
                    "another epsilon (e is epsilon, times sqrt(1 - beta2^t) under bias "
                    "correction)",
                    epsilon_text(found->epsilon),
                    epsilon_text(right->epsilon)));
  }
  if (!same(found->fit, right->fit, 0)) {
    said.push_back(decay_text(found->fit, right->fit));
  }
  if (!same(found->fit, right->fit, 1)) {
    said.push_back(step_text(evidence, found->fit, right->fit));
  }
  double squared = 0.0;
  for (std::size_t i = 0; i < candidate->change.size(); ++i) {
    const double expected = right->fit.coefficients[0] * by_reference->columns[0][i] +
                            right->fit.coefficients[1] * by_reference->columns[1][i];
    squared += std::pow(candidate->change[i] - expected, 2);
  }
  return differing("AdamW's update, read back from each side's own moments",
                   said,
                   found->fit,
                   std::sqrt(squared));
}

Hypotheses of_moment(const Evidence& evidence, const Sides& sides) {
  const auto right = read_moment(evidence, WhichRun::kReference);
  const auto found = read_moment(evidence, WhichRun::kCandidate);
  if (!right || !found) {
    return {};
  }
  const char* const beta = evidence.finding().id.kind == Kind::kExpAvg ? "beta1" : "beta2";
  std::vector<std::string> said;
  if (!same(*found, *right, 0)) {
    said.push_back(fmt::format(
        "{} is {} and {} in the reference", beta, fitted(*found, 0), fitted(*right, 0)));
  }
  if (!same(*found, *right, 1)) {
    said.push_back(
        fmt::format("the gradient enters with {} and with {} in the reference: 1 - {}, "
                    "or the factor of clipping",
                    fitted(*found, 1),
                    fitted(*right, 1),
                    beta));
  }
  return differing(
      "the moment, read back from its value before and the gradient", said, *found, sides.error);
}

// State of the optimizer that the candidate does not have, for a parameter that keeps its value:
// the error is what the reference's step changes.
Hypotheses not_stepped(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const Match* const after = evidence.with_kind(Kind::kParamNext);
  const auto before = evidence.candidate(evidence.with_kind(Kind::kParam));
  const auto kept = evidence.candidate(after);
  const auto stepped = evidence.reference(after);
  if (evidence.finding().status() != Status::kMissingInCandidate ||
      (id.kind != Kind::kMaster && !is_moment(id.kind)) || !before || !kept || !stepped) {
    return {};
  }
  const Sides sides(*stepped, *before);
  const double rest = distance(*kept, *before);
  if (rest > allowed_rest(sides.error, 0.0)) {
    return {};
  }
  return {about(sides,
                Signature::kOptimizer,
                rest,
                fmt::format("the candidate has no {} for {}, and the parameter keeps its value{}: "
                            "the optimizer does not step it",
                            name_of(id.kind),
                            id.path,
                            rest == 0.0 ? " in every bit" : ""))};
}

// A learning rate of a parameter, as the optimizer keeps it.
Hypotheses of_learning_rate(const Evidence& evidence, const Sides& sides) {
  const std::string name = state_name_of(evidence.finding().id);
  if ((name != kLearningRate && name != kNextLearningRate) || sides.size() != 1 ||
      !(sides.reference.data.front() > 0.0)) {
    return {};
  }
  const double ratio = sides.candidate.data.front() / sides.reference.data.front();
  return {about(sides,
                Signature::kOptimizer,
                0.0,
                fmt::format("the learning rate of {} is {} x the reference's{}: {} instead of {}",
                            parameter_of(evidence.finding().id),
                            factor_text(ratio),
                            name == kLearningRate ? "" : " from the next step on",
                            short_number(sides.candidate.data.front()),
                            short_number(sides.reference.data.front())))};
}

}  // namespace

Hypotheses find_optimizer(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  const Sides* const sides = evidence.sides();
  if (sides == nullptr) {
    return not_stepped(evidence);
  }
  return is_updated_parameter(kind) ? of_update(evidence)
         : is_moment(kind)          ? of_moment(evidence, *sides)
         : kind == Kind::kState     ? of_learning_rate(evidence, *sides)
                                    : Hypotheses();
}

}  // namespace ttrace
