// The gradient of a linear module's weight computed again, g' x at sampled outputs, from the
// candidate's own gradient of the output and from what may have stood in for its input: what
// another layer or micro-batch has there, or the same numbers read in another order.
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kOutputs = 64;  // looked at, of so many

// Every stride'th row of the gradient [out, in] from its operands [rows, out] and [rows, in].
std::vector<double> product(const Values& gradient, const Values& input, std::size_t stride) {
  const auto out = static_cast<std::size_t>(gradient.shape.back());
  const auto in = static_cast<std::size_t>(input.shape.back());
  const std::size_t rows = input.data.size() / in;
  std::vector<double> result((out + stride - 1) / stride * in);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t o = 0; o < out; o += stride) {
      const double g = gradient.data[row * out + o];
      double* const sum = result.data() + o / stride * in;
      const double* const x = input.data.data() + row * in;
      for (std::size_t i = 0; i < in; ++i) {
        sum[i] += g * x[i];
      }
    }
  }
  return result;
}

std::vector<double> sampled(const Values& weight, std::size_t stride) {
  const auto in = static_cast<std::size_t>(weight.shape.back());
  std::vector<double> result;
  for (std::size_t i = 0; i < weight.data.size(); i += stride * in) {
    result.insert(result.end(),
                  weight.data.begin() + static_cast<std::ptrdiff_t>(i),
                  weight.data.begin() + static_cast<std::ptrdiff_t>(i + in));
  }
  return result;
}

double norm_of(const std::vector<double>& data) {
  return Values{{}, data}.norm();
}

double apart(const std::vector<double>& left, const std::vector<double>& right) {
  return distance({{}, left}, {{}, right});
}

// What is known of the finding.
struct Weight {
  std::string module;
  Values gradient;  // of the module's output
  std::vector<double> reference;
  std::vector<double> candidate;
  std::size_t stride = 1;
  double bound = 0.0;  // of the sampled part
  std::int64_t inputs = 0;

  [[nodiscard]] std::vector<double> with(const Values& input) const {
    return product(gradient, input, stride);
  }
  [[nodiscard]] bool fits(const Values& input) const {
    return !input.shape.empty() && input.shape.back() == inputs &&
           input.data.size() / static_cast<std::size_t>(inputs) ==
               gradient.data.size() / static_cast<std::size_t>(gradient.shape.back());
  }
};

std::optional<Weight> weight_of(const Evidence& evidence, const std::string& module) {
  const Sides* sides = evidence.sides();
  auto gradient = candidate_of(evidence, Kind::kGradOutput, module);
  if (sides == nullptr || sides->reference.shape.size() != 2 || !gradient ||
      gradient->shape.empty() || gradient->shape.back() != sides->reference.shape[0] ||
      sides->reference.data.empty()) {
    return std::nullopt;
  }
  Weight weight;
  weight.module = module;
  const auto out = static_cast<std::size_t>(sides->reference.shape[0]);
  weight.stride = std::max<std::size_t>(1, out / kOutputs);
  weight.gradient = *std::move(gradient);
  weight.reference = sampled(sides->reference, weight.stride);
  weight.candidate = sampled(sides->candidate, weight.stride);
  weight.bound = evidence.bound() * std::sqrt(static_cast<double>(weight.reference.size()) /
                                              static_cast<double>(sides->reference.data.size()));
  weight.inputs = sides->reference.shape[1];
  return weight;
}

// Whether the candidate's gradient is what `input` makes of it.
std::optional<double> made_by(const Weight& weight, const Values& input) {
  if (!weight.fits(input)) {
    return std::nullopt;
  }
  const double before = apart(weight.candidate, weight.reference);
  const double tolerance = std::max(std::min(2.0 * weight.bound, 0.5 * before), 0.05 * before);
  const double rest = apart(weight.candidate, weight.with(input));
  return rest <= tolerance ? std::optional(rest) : std::nullopt;
}

// The numbers of `input` [rows, in] as they are read by one who takes the parts of `parts` ranks,
// stored with their dimensions exchanged, [in, rows / parts] each, for one [in, rows].
Values exchanged(const Values& input, std::size_t parts) {
  const auto in = static_cast<std::size_t>(input.shape.back());
  const std::size_t rows = input.data.size() / in;
  const std::size_t own = rows / parts;
  Values result = input;
  for (std::size_t i = 0; i < input.data.size(); ++i) {
    const std::size_t part = i / (in * own);
    const std::size_t feature = i % (in * own) / own;
    const std::size_t row = part * own + i % own;
    result.data[i % rows * in + i / rows] = input.data[row * in + feature];
  }
  return result;
}

Diagnosis told(Signature signature, const Weight& weight, const std::string& what, double rest) {
  return {signature,
          what + "; computed again from the candidate's own gradient of " + weight.module +
              "'s output, which leaves " + short_number(rest) + " of " +
              short_number(apart(weight.candidate, weight.reference))};
}

std::optional<Diagnosis> from_other_record(const Evidence& evidence,
                                           const Weight& weight,
                                           const Match& right) {
  for (const Match& match : evidence.matches()) {
    const bool same_path = match.id.path == right.id.path;
    if (match.id.kind != right.id.kind || match.id.slot != right.id.slot ||
        match.id.step != right.id.step || match.id.recompute != right.id.recompute ||
        match.id == right.id ||
        (same_path ? match.id.microbatch == right.id.microbatch
                   : match.id.microbatch != right.id.microbatch ||
                         !evidence.vocabulary().differ_in_number(
                             Role::kLayers, match.id.path, right.id.path))) {
      continue;
    }
    const auto input = evidence.candidate(match);
    const auto rest = input ? made_by(weight, *input) : std::nullopt;
    if (rest) {
      return told(same_path ? Signature::kStale : Signature::kWrongLayer,
                  weight,
                  "backward multiplied by " + to_string(match.id) + " instead of " +
                      to_string(right.id) +
                      ": what was saved for backward has been written over, or is another's",
                  *rest);
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> from_other_reading(const Evidence& evidence,
                                            const Weight& weight,
                                            const Match& right,
                                            const Values& input) {
  const std::size_t rows = input.data.size() / static_cast<std::size_t>(weight.inputs);
  for (const std::string& axis : evidence.axes()) {
    const auto parts = static_cast<std::size_t>(evidence.axis_size(axis));
    if (rows % parts != 0) {
      continue;
    }
    if (const auto rest = made_by(weight, exchanged(input, parts))) {
      return told(Signature::kWrongView,
                  weight,
                  "backward multiplied by " + to_string(right.id) + " with the parts of the " +
                      std::to_string(parts) + " ranks of " + axis +
                      " stored as [features, rows] each and read as one [features, rows]",
                  *rest);
    }
  }
  return std::nullopt;
}

// A weight that several modules use: the gradient of one use is not in the sum, or is there twice.
std::optional<Diagnosis> from_other_use(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  for (const Match& match : evidence.matches()) {
    const TensorId& finding = evidence.finding().id;
    if (match.id.kind != Kind::kOutput || match.id.step != finding.step ||
        match.id.microbatch != finding.microbatch || match.id.recompute != finding.recompute ||
        evidence.find(weight_id(finding.step, match.id.path)) != nullptr) {
      continue;
    }
    const auto weight = weight_of(evidence, match.id.path);
    if (!weight) {
      continue;
    }
    for (const Match* before : forward_before(evidence, match.id)) {
      const auto input = evidence.candidate(*before);
      if (!input || !weight->fits(*input)) {
        continue;
      }
      const std::vector<double> use = weight->with(*input);
      std::vector<double> target = weight->candidate;
      for (std::size_t i = 0; i < target.size(); ++i) {
        target[i] -= weight->reference[i];
      }
      const auto found = fit(std::span(&use, 1), target);
      if (found && found->residual <= 0.1 * norm_of(target)) {
        return Diagnosis{Signature::kWrongAddends,
                         "candidate = reference + a x the gradient of the weight's use by " +
                             match.id.path + ", a = " + factor_text(found->coefficients[0]) +
                             " +- " + short_number(found->deviations[0]) +
                             (sides->candidate.norm() > 0.0 && found->coefficients[0] < 0.0
                                  ? ": the gradient of this use is not in the sum"
                                  : "")};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> find_weight_gradient(const Evidence& evidence) {
  constexpr double kKnown = 0.1;  // of its norm: else it is not this that the reference computes
  constexpr std::string_view kWeight = ".weight";
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kParamGrad || !id.path.ends_with(kWeight) || evidence.sides() == nullptr) {
    return std::nullopt;
  }
  const auto weight = weight_of(evidence, id.path.substr(0, id.path.size() - kWeight.size()));
  if (!weight) {
    return from_other_use(evidence);
  }
  TensorId output = id;
  output.kind = Kind::kOutput;
  output.path = weight->module;
  for (const Match* right : forward_before(evidence, output)) {
    const auto input = evidence.candidate(*right);
    if (!input || !weight->fits(*input) ||
        apart(weight->with(*input), weight->reference) > kKnown * norm_of(weight->reference)) {
      continue;
    }
    if (auto found = from_other_record(evidence, *weight, *right)) {
      return found;
    }
    if (auto found = from_other_reading(evidence, *weight, *right, *input)) {
      return found;
    }
  }
  return from_other_use(evidence);
}

}  // namespace ttrace
