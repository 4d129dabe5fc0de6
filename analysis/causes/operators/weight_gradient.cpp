// The gradient of a linear module's weight computed again, g' x at sampled outputs, from the
// candidate's own gradient of the output and from what may have stood in for its input: what
// another layer or micro-batch has there, or the same numbers read in another order.
#include "analysis/causes/common/extra_addend.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
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
  double clean = 0.0;  // what the right input leaves of the reference's gradient

  [[nodiscard]] double error() const { return apart(candidate, reference); }
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

// What `input` leaves of the candidate's gradient; nothing where that is too much.
std::optional<double> made_by(const Weight& weight, const Values& input) {
  if (!weight.fits(input)) {
    return std::nullopt;
  }
  const double rest = apart(weight.candidate, weight.with(input));
  return rest <= allowed_rest(weight.error(), weight.bound) ? std::optional(rest) : std::nullopt;
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

// The gradient of the finding, and the input that the reference's is made from.
struct Known {
  Weight weight;
  const Match* input = nullptr;
  Values values;  // of the input
};

std::optional<Known> known_of(const Evidence& evidence) {
  constexpr std::string_view kWeight = ".weight";
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kParamGrad || !id.path.ends_with(kWeight) || evidence.sides() == nullptr) {
    return std::nullopt;
  }
  auto weight = weight_of(evidence, module_of(id.path));
  if (!weight) {
    return std::nullopt;
  }
  TensorId output = id;
  output.kind = Kind::kOutput;
  output.path = weight->module;
  for (const Match* input : inputs_of(evidence, output)) {
    auto values = evidence.candidate(*input);
    if (!values || !weight->fits(*values)) {
      continue;
    }
    weight->clean = apart(weight->with(*values), weight->reference);
    if (reproduces(weight->clean, norm_of(weight->reference))) {
      return Known{*std::move(weight), input, *std::move(values)};
    }
  }
  return std::nullopt;
}

Hypothesis from(const Weight& weight, Signature signature, const std::string& what, double rest) {
  return {.signature = signature,
          .sentence = fmt::format("{}; computed again from the candidate's own gradient of {}'s "
                                  "output, which leaves {} of {}",
                                  what,
                                  weight.module,
                                  short_number(rest),
                                  short_number(weight.error())),
          .error = weight.error(),
          .residual = beyond_replay(rest, weight.clean)};
}

}  // namespace

// What another layer or micro-batch has in the input's place.
std::optional<Hypothesis> find_other_operand(const Evidence& evidence) {
  const auto known = known_of(evidence);
  double tried = 0.0;
  for (const Match& match : evidence.matches()) {
    if (!known || match.id == known->input->id) {
      continue;
    }
    const TensorId& right = known->input->id;
    const bool same_path = match.id.path == right.path;
    if (match.id.kind != right.kind || match.id.slot != right.slot || match.id.step != right.step ||
        match.id.recompute != right.recompute ||
        (same_path ? match.id.microbatch == right.microbatch
                   : match.id.microbatch != right.microbatch ||
                         !evidence.vocabulary().differ_in_number(
                             Role::kLayers, match.id.path, right.path))) {
      continue;
    }
    ++tried;
    const auto input = evidence.candidate(match);
    if (const auto rest = input ? made_by(known->weight, *input) : std::nullopt) {
      Hypothesis found =
          from(known->weight,
               same_path ? Signature::kStale : Signature::kWrongLayer,
               fmt::format("backward multiplied by {} instead of {}: what was saved for backward "
                           "has been overwritten, or belongs to another call",
                           to_string(match.id),
                           to_string(right)),
               *rest);
      if (same_path) {
        found.named.microbatches = {match.id.microbatch};
      }
      found.bits = bits_of_choice(tried);
      return found;
    }
  }
  return std::nullopt;
}

// The same numbers, read in another order.
std::optional<Hypothesis> find_other_reading(const Evidence& evidence) {
  const auto known = known_of(evidence);
  const std::vector<std::string> axes = known ? evidence.axes() : std::vector<std::string>();
  for (const std::string& axis : axes) {
    const auto parts = static_cast<std::size_t>(evidence.axis_size(axis));
    const std::size_t rows =
        known->values.data.size() / static_cast<std::size_t>(known->weight.inputs);
    const auto rest =
        rows % parts == 0 ? made_by(known->weight, exchanged(known->values, parts)) : std::nullopt;
    if (rest) {
      Hypothesis found =
          from(known->weight,
               Signature::kWrongView,
               fmt::format("backward multiplied by {} after its parts on the {} ranks of {}, "
                           "stored as [features, rows] each, were read as one [features, rows]",
                           to_string(known->input->id),
                           parts,
                           axis),
               *rest);
      found.named.axes = {axis};
      found.bits = bits_of_choice(static_cast<double>(axes.size()));
      return found;
    }
  }
  return std::nullopt;
}

// A weight that several modules use: the gradient of one use is not in the sum, or is there twice.
std::optional<Hypothesis> find_other_use(const Evidence& evidence) {
  const TensorId& finding = evidence.finding().id;
  if (finding.kind != Kind::kParamGrad || evidence.sides() == nullptr) {
    return std::nullopt;
  }
  for (const Match& match : evidence.matches()) {
    if (match.id.kind != Kind::kOutput || match.id.step != finding.step ||
        match.id.microbatch != finding.microbatch || match.id.recompute != finding.recompute ||
        evidence.find(weight_id(finding.step, match.id.path)) != nullptr) {
      continue;
    }
    const auto weight = weight_of(evidence, match.id.path);
    for (const Match* before :
         weight ? inputs_of(evidence, match.id) : std::vector<const Match*>()) {
      const auto input = evidence.candidate(*before);
      if (!input || !weight->fits(*input)) {
        continue;
      }
      const std::vector<ExtraAddend> use = {
          {weight->with(*input),
           "the gradient of the weight's use by " + match.id.path,
           [](double a, double) {
             return std::string(a < 0.0 ? ": the gradient of this use is not in the sum" : "");
           }}};
      std::vector<double> difference = weight->candidate;
      for (std::size_t i = 0; i < difference.size(); ++i) {
        difference[i] -= weight->reference[i];
      }
      if (auto found = read_extra_addends(
              use, difference, allowed_rest(norm_of(difference), weight->bound))) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
