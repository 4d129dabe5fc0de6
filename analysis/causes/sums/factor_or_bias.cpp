#include "analysis/align/module_path.h"
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace ttrace {
namespace {

// The bias of the module whose output this is, repeated over the rows; nothing where it has none.
std::optional<std::vector<double>> bias_like(const Evidence& evidence, const Values& output) {
  TensorId id = evidence.finding().id;
  if (id.kind != Kind::kOutput || output.shape.empty()) {
    return std::nullopt;
  }
  id = bias_id(id.step, id.path);
  const Match* match = evidence.find(id);
  const auto bias = match == nullptr ? std::nullopt : evidence.reference(*match);
  if (!bias || bias->shape != std::vector<std::int64_t>{output.shape.back()}) {
    return std::nullopt;
  }
  std::vector<double> rows(output.data.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = bias->data[i % bias->data.size()];
  }
  return rows;
}

// The record before the finding, of the same micro-batch and direction, with the factor it has.
std::string factor_before(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const bool known = id.kind == Kind::kOutput || id.kind == Kind::kGradOutput;
  const Match* before = nullptr;
  for (const Match& match : evidence.matches()) {
    if (&match == &evidence.match()) {
      break;
    }
    if (known && match.id.step == id.step && match.id.microbatch == id.microbatch &&
        match.id.kind == id.kind && !match.reference.empty() && !match.candidate.empty()) {
      before = &match;
    }
  }
  if (before == nullptr) {
    return "";
  }
  const auto reference = evidence.reference(*before);
  const auto candidate = evidence.candidate(*before);
  if (!reference || !candidate || reference->shape != candidate->shape) {
    return "";
  }
  const std::array columns = {reference->data};
  const auto factor = fit(columns, candidate->data);
  return factor ? "; the record before it, " + to_string(before->id) + ", has the factor " +
                      factor_text(factor->coefficients[0])
                : "";
}

constexpr double kSameFactor = 0.01;

std::optional<double> factor_of(const Evidence& evidence, const Match& match) {
  const auto reference = evidence.reference(match);
  const auto candidate = evidence.candidate(match);
  if (!reference || !candidate || reference->shape != candidate->shape) {
    return std::nullopt;
  }
  const auto found = fit(std::span(&reference->data, 1), candidate->data);
  return found ? std::optional(found->coefficients[0]) : std::nullopt;
}

// "; 7 of the 8 main_grad records looked at have this factor": of a gradient or moment of a
// parameter. A factor common to all of them does not begin in a module.
std::string common_factor(const Evidence& evidence, double factor) {
  constexpr int kLookedAt = 16;
  const TensorId& id = evidence.finding().id;
  const bool known = id.kind == Kind::kParamGrad || id.kind == Kind::kMainGrad ||
                     id.kind == Kind::kExpAvg || id.kind == Kind::kExpAvgSq;
  int same = 0;
  int all = 0;
  for (const Match& match : evidence.matches()) {
    if (!known || match.id.kind != id.kind || match.id.step != id.step ||
        match.id.microbatch != id.microbatch || all == kLookedAt) {
      continue;
    }
    if (const auto other = factor_of(evidence, match)) {
      ++all;
      same += std::abs(*other - factor) <= kSameFactor * std::abs(factor) ? 1 : 0;
    }
  }
  return all < 2 ? ""
                 : "; " + std::to_string(same) + " of the " + std::to_string(all) + " " +
                       std::string(name_of(id.kind)) + " records looked at have this factor";
}

// Gradients are clipped to a norm: divided by another one, all moments carry the norms' ratio.
std::string norm_ratio(const Evidence& evidence, double factor) {
  const TensorId& id = evidence.finding().id;
  for (const Match& match : evidence.matches()) {
    if ((id.kind != Kind::kExpAvg && id.kind != Kind::kExpAvgSq) || match.id.step != id.step ||
        match.id.kind != Kind::kScalar ||
        !evidence.vocabulary().is(Role::kGradientNorm, match.id.path)) {
      continue;
    }
    const auto reference = evidence.reference(match);
    const auto candidate = evidence.candidate(match);
    if (!reference || !candidate || reference->data.size() != 1 || candidate->data.size() != 1) {
      continue;
    }
    const double ratio =
        std::pow(reference->data[0] / candidate->data[0], id.kind == Kind::kExpAvg ? 1.0 : 2.0);
    if (std::abs(ratio - 1.0) > kSameFactor &&
        std::abs(factor - ratio) <= kSameFactor * std::abs(ratio)) {
      return "; this is the factor that clipping by another norm gives: " + match.id.path + " is " +
             short_number(candidate->data[0]) + " and " + short_number(reference->data[0]) +
             " in the reference";
    }
  }
  return "";
}

Hypothesis wrong_factor(const Evidence& evidence, const Fit& fitted) {
  const double factor = 1.0 + fitted.coefficients[0];
  const std::string text = explain_factor(evidence, factor, fitted.deviations[0]);
  return {
      .signature = Signature::kWrongFactor,
      .sentence =
          (text == "0" ? "candidate = 0 x reference" : "candidate = a x reference, a = " + text) +
          factor_before(evidence) + common_factor(evidence, factor) + norm_ratio(evidence, factor),
      .named = {.axes = axes_in(evidence, factor), .factors = {factor}},
      .error = evidence.sides()->error,
      .residual = fitted.residual,
      .bits = bits_of_factor(evidence, factor, fitted.deviations[0])};
}

// The bias of the module's output, and how often it is in the error.
struct BiasFit {
  std::vector<double> rows;
  Fit fit;
};

std::optional<BiasFit> fit_bias(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  auto rows = sides == nullptr ? std::nullopt : bias_like(evidence, sides->reference);
  auto found = rows ? fit(std::span(&*rows, 1), sides->difference()) : std::nullopt;
  return found ? std::optional(BiasFit{*std::move(rows), *std::move(found)}) : std::nullopt;
}

}  // namespace

// A factor that only one of several copies has explains no more than that copy: see
// find_rank_factors().
std::optional<Hypothesis> find_factor(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr || sides->reference.data.size() < 2 || evidence.copies_differ()) {
    return std::nullopt;
  }
  const auto found = fit(std::span(&sides->reference.data, 1), sides->difference());
  return found && found->residual <= evidence.tolerance(sides->error)
             ? std::optional(wrong_factor(evidence, *found))
             : std::nullopt;
}

std::optional<Hypothesis> find_repeated_bias(const Evidence& evidence) {
  const auto bias = fit_bias(evidence);
  if (!bias || bias->fit.residual > evidence.tolerance(evidence.sides()->error)) {
    return std::nullopt;
  }
  const double times = bias->fit.coefficients[0];
  const double deviation = bias->fit.deviations[0];
  const double whole = std::round(times);
  if (whole == 0.0 || whole < -1.0 || std::abs(times - whole) > std::max(0.05, 3.0 * deviation)) {
    return std::nullopt;
  }
  Hypothesis found{.named = {.factors = {times + 1.0}},
                   .error = evidence.sides()->error,
                   .residual = bias->fit.residual,
                   .bits = bits_of_choice(2.0)};
  if (whole < 0.0) {
    found.signature = Signature::kConstantBias;
    found.sentence =
        fmt::format("the module's bias is missing: candidate = reference - b x bias, b = {} +- {}",
                    factor_text(-times),
                    short_number(deviation));
    return found;
  }
  const std::string axis = axis_of_size(evidence, whole + 1.0);
  found.signature = Signature::kRepeatedBias;
  found.sentence = fmt::format("the candidate adds the bias {} times instead of once (+- {}){}",
                               factor_text(times + 1.0),
                               short_number(deviation),
                               axis.empty() ? ""
                                            : fmt::format(": every rank of {0} adds it before the "
                                                          "sum over {0}",
                                                          axis));
  if (!axis.empty()) {
    found.named.axes = {axis};
  }
  return found;
}

// d = a (r - bias): what the ranks sum up before the bias is added has the factor 1 + a.
std::optional<Hypothesis> find_repeated_sum(const Evidence& evidence) {
  const auto bias = fit_bias(evidence);
  if (!bias) {
    return std::nullopt;
  }
  const Sides& sides = *evidence.sides();
  const std::array columns = {sides.reference.data, bias->rows};
  const auto both = fit(columns, sides.difference());
  if (!both || both->residual > evidence.tolerance(sides.error)) {
    return std::nullopt;
  }
  const double a = both->coefficients[0];
  if (std::abs(both->coefficients[1] + a) >
      std::max(0.05 * std::abs(a), 3.0 * both->deviations[1])) {
    return std::nullopt;
  }
  const std::string axis = axis_of_size(evidence, 1.0 + a);
  const std::string text = "without its bias the candidate is a x the reference, a = " +
                           explain_factor(evidence, 1.0 + a, both->deviations[0]);
  return Hypothesis{
      .signature = axis.empty() ? Signature::kWrongFactor : Signature::kRepeatedReduction,
      .sentence = axis.empty() ? text : text + ": it was summed over " + axis + " twice",
      .named = {.axes = axes_in(evidence, 1.0 + a), .factors = {1.0 + a}},
      .error = sides.error,
      .residual = both->residual,
      .bits = bits_of_choice(2.0) + bits_of_factor(evidence, 1.0 + a, both->deviations[0])};
}

}  // namespace ttrace
