#include "analysis/align/module_path.h"
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

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

std::vector<double> difference(const Sides& sides) {
  std::vector<double> rest = sides.candidate.data;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] -= sides.reference.data[i];
  }
  return rest;
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
        match.id.kind != Kind::kScalar || match.id.path.find("norm") == std::string::npos) {
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
      return "; it is what clipping by another norm makes of it: " + match.id.path + " is " +
             short_number(candidate->data[0]) + " and " + short_number(reference->data[0]) +
             " in the reference";
    }
  }
  return "";
}

Diagnosis wrong_factor(const Evidence& evidence, double factor, double deviation) {
  const std::string fitted = explain_factor(evidence, factor, deviation);
  return {
      Signature::kWrongFactor,
      (fitted == "0" ? "candidate = 0 x reference" : "candidate = a x reference, a = " + fitted) +
          factor_before(evidence) + common_factor(evidence, factor) + norm_ratio(evidence, factor)};
}

std::optional<Diagnosis> repeated_bias(const Evidence& evidence, double times, double deviation) {
  const double whole = std::round(times);
  if (std::abs(times + 1.0) <= std::max(0.05, 3.0 * deviation)) {
    return Diagnosis{Signature::kConstantBias,
                     "the module's bias is missing: candidate = reference - b x bias, b = " +
                         factor_text(-times) + " +- " + short_number(deviation)};
  }
  if (whole < 1.0 || std::abs(times - whole) > std::max(0.05, 3.0 * deviation)) {
    return std::nullopt;
  }
  const std::string axis = axis_of_size(evidence, whole + 1.0);
  return Diagnosis{
      Signature::kRepeatedBias,
      "the bias is in it " + factor_text(times + 1.0) + " times instead of once (fitted +- " +
          short_number(deviation) + ")" +
          (axis.empty() ? "" : ": added on every rank of " + axis + " before the sum over it")};
}

// d = a (r - bias): what the ranks sum up before the bias is added has the factor 1 + a.
std::optional<Diagnosis> factor_before_bias(const Evidence& evidence, const Fit& both) {
  const double a = both.coefficients[0];
  const double deviation = both.deviations[0];
  if (std::abs(both.coefficients[1] + a) > std::max(0.05 * std::abs(a), 3.0 * both.deviations[1])) {
    return std::nullopt;
  }
  const std::string axis = axis_of_size(evidence, 1.0 + a);
  const std::string text = "without its bias it is a x the reference, a = " +
                           explain_factor(evidence, 1.0 + a, deviation);
  if (!axis.empty()) {
    return Diagnosis{Signature::kRepeatedReduction, text + ": summed over " + axis + " twice"};
  }
  return Diagnosis{Signature::kWrongFactor, text};
}

// Whether d = (a - 1) r tells anything: a candidate near zero is near a small multiple of every
// reference, and where all elements are nearly equal a number added to them looks like a factor.
bool is_telling(const Fit& factor, const Sides& sides, std::span<const double> target) {
  constexpr double kMuch = 0.5;
  constexpr double kRounding = 1e-12;
  if (factor.residual >
      std::max(kMuch * sides.candidate.norm(), kRounding * sides.reference.norm())) {
    return false;
  }
  const std::array ones = {std::vector<double>(target.size(), 1.0)};
  const auto offset = fit(ones, target);
  return !offset || offset->residual >= kMuch * factor.residual;
}

// Of copies that disagree one is right and another is a multiple by a number without meaning: that
// ranks compute different things says more.
bool is_of_one_copy(const Evidence& evidence, const Fit& factor) {
  constexpr double kNear = 0.1;  // of the error
  if (!evidence.copies_differ()) {
    return false;
  }
  const Sides& sides = *evidence.sides();
  const double near = std::max(evidence.bound(), kNear * sides.error);
  const std::vector<Shard>& shards = evidence.match().candidate;
  const bool one_is_right = std::any_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    return distance(local_values(shard), sides.reference) <= near;
  });
  return one_is_right &&
         explain_factor(evidence, 1.0 + factor.coefficients[0], factor.deviations[0]).find('=') ==
             std::string::npos;
}

}  // namespace

std::optional<Diagnosis> find_factor_or_bias(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr || sides->reference.data.size() < 2) {
    return std::nullopt;
  }
  const double tolerance = evidence.tolerance(sides->error);
  const std::vector<double> target = difference(*sides);
  std::vector<std::vector<double>> columns = {sides->reference.data};
  const auto factor = fit(columns, target);
  auto bias = bias_like(evidence, sides->reference);
  const auto repeats = bias ? fit(std::span(&*bias, 1), target) : std::nullopt;
  if (repeats && repeats->residual <= tolerance &&
      (!factor || repeats->residual < factor->residual)) {
    if (auto found = repeated_bias(evidence, repeats->coefficients[0], repeats->deviations[0])) {
      return found;
    }
  }
  if (bias) {
    columns.push_back(*std::move(bias));
    const auto both = fit(columns, target);
    const bool needs_both =
        both && both->residual <= tolerance && (!factor || both->residual < 0.5 * factor->residual);
    if (needs_both) {
      if (auto found = factor_before_bias(evidence, *both)) {
        return found;
      }
    }
  }
  if (factor && factor->residual <= tolerance && is_telling(*factor, *sides, target) &&
      !is_of_one_copy(evidence, *factor)) {
    return wrong_factor(evidence, 1.0 + factor->coefficients[0], factor->deviations[0]);
  }
  return std::nullopt;
}

}  // namespace ttrace
