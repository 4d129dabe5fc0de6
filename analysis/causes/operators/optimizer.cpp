// AdamW read back from its own records, side by side. With m and v the moments after the step,
//   before - after = (lr wd) before + (lr sqrt(c2) / c1) m / (sqrt(v) + e),  c = 1 - beta^t,
//   m = beta1 m' + (1 - beta1) g,   v = beta2 v' + (1 - beta2) g^2,
// so that two coefficients per tensor tell weight decay, learning rate and bias correction, or beta
// and the factor of the gradient. What they are on the reference's side is what they should be.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace ttrace {
namespace {

using Column = std::vector<double>;

constexpr double kExplained = 0.02;  // of the update's norm may be left: masters are rounded
constexpr double kEqual = 1e-3;      // relative, on top of three standard errors

std::optional<Values> value_of(const Evidence& evidence,
                               Kind kind,
                               std::int64_t step,
                               bool candidate) {
  TensorId id = evidence.finding().id;
  id.kind = kind;
  id.step = step;
  const Match* match = evidence.find(id);
  return match == nullptr ? std::nullopt
                          : (candidate ? evidence.candidate(*match) : evidence.reference(*match));
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

  [[nodiscard]] double norm() const { return Values{{}, change}.norm(); }
};

std::optional<Update> update_of(const Evidence& evidence, bool candidate) {
  const std::int64_t step = evidence.finding().id.step;
  auto before = value_of(evidence, Kind::kMaster, step - 1, candidate);
  if (!before) {
    before = value_of(evidence, Kind::kParam, step, candidate);
  }
  const auto after = value_of(evidence, evidence.finding().id.kind, step, candidate);
  auto m = value_of(evidence, Kind::kExpAvg, step, candidate);
  auto v = value_of(evidence, Kind::kExpAvgSq, step, candidate);
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
  double epsilon = 0.0;
};

std::optional<Reading> read_with(const Update& update, double epsilon, Epsilon where) {
  const std::array columns = {update.before.data, direction(update.m, update.v, epsilon, where)};
  auto found = fit(columns, update.change);
  return found ? std::optional(Reading{*std::move(found), epsilon}) : std::nullopt;
}

// The epsilon that leaves least, to a few per cent; decay and step with it. An epsilon that is
// nothing beside sqrt(v) reads as 0.
std::optional<Reading> read(const Update& update, Epsilon where) {
  constexpr double kSmallest = 1e-14;
  constexpr double kLargest = 1e-2;
  constexpr double kStep = 2.0;
  constexpr double kFine = 1.05;
  std::optional<Reading> best = read_with(update, 0.0, where);
  const auto try_one = [&](double epsilon) {
    auto found = read_with(update, epsilon, where);
    if (found && best && found->fit.residual < 0.99 * best->fit.residual) {
      best = std::move(found);
    }
  };
  for (double epsilon = kSmallest; epsilon < kLargest; epsilon *= kStep) {
    try_one(epsilon);
  }
  const double centre = best ? best->epsilon : 0.0;
  for (double epsilon = centre / kStep; centre > 0.0 && epsilon < centre * kStep;
       epsilon *= kFine) {
    try_one(epsilon);
  }
  return best;
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

std::optional<Diagnosis> find_in_update(const Evidence& evidence) {
  const auto reference = update_of(evidence, false);
  const auto candidate = update_of(evidence, true);
  if (!reference || !candidate) {
    return std::nullopt;
  }
  const auto right = read(*reference, Epsilon::kOutside);
  auto found = read(*candidate, Epsilon::kOutside);
  if (!right || !found || right->fit.residual > kExplained * reference->norm()) {
    return std::nullopt;
  }
  std::string text;
  if (found->fit.residual > kExplained * candidate->norm()) {
    found = read(*candidate, Epsilon::kInside);
    if (!found || found->fit.residual > kExplained * candidate->norm()) {
      return std::nullopt;
    }
    text = "epsilon stands inside the root of the denominator";
  }
  const auto append = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (!same(found->fit, right->fit, 0)) {
    append(decay_text(found->fit, right->fit));
  }
  if (!same(found->fit, right->fit, 1)) {
    append(step_text(evidence, found->fit, right->fit));
  }
  if (text.empty()) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kOptimizer,
                   "AdamW's update, read back from each side's own moments: " + text};
}

// A moment from its value before and the gradient, or its square.
std::optional<Fit> read_moment(const Evidence& evidence, bool candidate) {
  const TensorId& id = evidence.finding().id;
  const auto after = value_of(evidence, id.kind, id.step, candidate);
  const auto before = value_of(evidence, id.kind, id.step - 1, candidate);
  auto gradient = value_of(evidence, Kind::kMainGrad, id.step, candidate);
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

std::optional<Diagnosis> find_in_moment(const Evidence& evidence) {
  const auto right = read_moment(evidence, false);
  const auto found = read_moment(evidence, true);
  if (!right || !found) {
    return std::nullopt;
  }
  const std::string beta = evidence.finding().id.kind == Kind::kExpAvg ? "beta1" : "beta2";
  std::string text;
  if (!same(*found, *right, 0)) {
    text = beta + " is " + fitted(*found, 0) + " and " + fitted(*right, 0) + " in the reference";
  }
  if (!same(*found, *right, 1)) {
    text += (text.empty() ? "" : "; ") + std::string("the gradient enters with ") +
            fitted(*found, 1) + " and with " + fitted(*right, 1) + " in the reference: 1 - " +
            beta + ", or the factor of clipping";
  }
  return text.empty()
             ? std::nullopt
             : std::optional(Diagnosis{
                   Signature::kOptimizer,
                   "the moment, read back from its value before and the gradient: " + text});
}

// State of the optimizer that the candidate lacks, of a parameter that keeps its value.
std::optional<Diagnosis> find_not_stepped(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kMaster && id.kind != Kind::kExpAvg && id.kind != Kind::kExpAvgSq) {
    return std::nullopt;
  }
  const auto before = value_of(evidence, Kind::kParam, id.step, true);
  const auto after = value_of(evidence, Kind::kParamNext, id.step, true);
  if (!before || !after || before->data != after->data) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kOptimizer,
                   "the candidate has no " + std::string(name_of(id.kind)) + " for " + id.path +
                       ", which keeps its value in every bit: it is not among the parameters that "
                       "the optimizer steps"};
}

}  // namespace

std::optional<Diagnosis> find_optimizer(const Evidence& evidence) {
  if (evidence.finding().status() == Status::kMissingInCandidate) {
    return find_not_stepped(evidence);
  }
  if (evidence.sides() == nullptr) {
    return std::nullopt;
  }
  switch (evidence.finding().id.kind) {
    case Kind::kMaster:
    case Kind::kParamNext:
      return find_in_update(evidence);
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return find_in_moment(evidence);
    default:
      return std::nullopt;
  }
}

}  // namespace ttrace
