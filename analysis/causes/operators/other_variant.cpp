// Activations and norms computed again from recorded inputs. The variant that makes the reference's
// output from the reference's input says which tensor is the input and what is right; the variant
// that makes the candidate's output from the candidate's input says what it did instead.
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/checks/normalisation.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Rows of `width` numbers of one side; weight and bias are empty for activations.
struct Operands {
  Values input;
  std::vector<double> weight;
  std::vector<double> bias;

  [[nodiscard]] std::size_t width() const { return static_cast<std::size_t>(input.shape.back()); }
};

struct Variant {
  std::string name;
  std::function<Values(const Operands&)> compute;
};

double gelu(double x) {
  return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
}
double gelu_tanh(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double silu(double x) {
  return x / (1.0 + std::exp(-x));
}
double gelu_sigmoid(double x) {
  return x / (1.0 + std::exp(-1.702 * x));
}
double relu(double x) {
  return std::max(0.0, x);
}
double identity(double x) {
  return x;
}

using Function = double (*)(double);

Variant plain(const std::string& name, Function f) {
  return {name, [f](const Operands& operands) {
            Values output = operands.input;
            for (double& value : output.data) {
              value = f(value);
            }
            return output;
          }};
}

enum class Gate { kFirstHalf, kSecondHalf, kEven };

Variant gated(const std::string& name, Function f, Gate gate) {
  return {name, [f, gate](const Operands& operands) {
            Values output = operands.input;
            const std::size_t half = operands.width() / 2;
            output.shape.back() = static_cast<std::int64_t>(half);
            output.data.resize(output.data.size() / operands.width() * half);
            for (std::size_t i = 0; i < output.data.size(); ++i) {
              const double* row = operands.input.data.data() + i / half * operands.width();
              const std::size_t at = i % half;
              const double left = gate == Gate::kEven ? row[2 * at] : row[at];
              const double right = gate == Gate::kEven ? row[2 * at + 1] : row[at + half];
              output.data[i] = gate == Gate::kSecondHalf ? left * f(right) : f(left) * right;
            }
            return output;
          }};
}

std::vector<Variant> activations() {
  std::vector<Variant> variants;
  const std::array<std::pair<std::string, Function>, 6> functions = {
      {{"GELU (erf)", gelu},
       {"GELU (tanh)", gelu_tanh},
       {"SiLU", silu},
       {"GELU (sigmoid)", gelu_sigmoid},
       {"ReLU", relu},
       {"no activation", identity}}};
  for (const auto& [name, f] : functions) {
    variants.push_back(plain(name, f));
    variants.push_back(gated(name + " of the first half times the second", f, Gate::kFirstHalf));
    variants.push_back(gated(name + " of the second half times the first", f, Gate::kSecondHalf));
    variants.push_back(gated(name + " of even numbers times odd ones", f, Gate::kEven));
  }
  return variants;
}

Variant norm(const Normalisation& normalisation) {
  return {normalisation.name(), [normalisation](const Operands& operands) {
            const std::size_t width = operands.width();
            Values output = operands.input;
            for (std::size_t at = 0; at < output.data.size(); at += width) {
              const auto row = std::span(output.data).subspan(at, width);
              normalisation.apply(row);
              for (std::size_t i = 0; i < width; ++i) {
                row[i] =
                    row[i] * operands.weight[i] + (operands.bias.empty() ? 0.0 : operands.bias[i]);
              }
            }
            return output;
          }};
}

std::vector<Variant> norms() {
  std::vector<Variant> variants;
  for (const Normalisation& normalisation : known_normalisations()) {
    variants.push_back(norm(normalisation));
  }
  return variants;
}

TensorId parameter_of(const Evidence& evidence, const std::string& name) {
  const TensorId& id = evidence.finding().id;
  return {.step = id.step, .kind = Kind::kParam, .path = id.path + "." + name};
}

// Rows that are looked at, of so many.
std::size_t row_stride(std::size_t rows) {
  constexpr std::size_t kLookedAt = 512;
  return std::max<std::size_t>(1, rows / kLookedAt) | 1U;
}

// Every few rows of a tensor, as a matrix.
Values sampled(const Values& values) {
  const auto width = static_cast<std::size_t>(values.shape.back());
  const std::size_t rows = values.data.size() / width;
  Values result{{0, values.shape.back()}, {}};
  for (std::size_t row = 0; row < rows; row += row_stride(rows)) {
    const double* first = values.data.data() + row * width;
    result.data.insert(result.data.end(), first, first + width);
    ++result.shape[0];
  }
  return result;
}

std::optional<Operands> operands_of(const Evidence& evidence, const Match& input, WhichRun run) {
  auto values = evidence.value(input, run);
  if (!values || values->shape.empty() || values->shape.back() < 2) {
    return std::nullopt;
  }
  Operands operands{sampled(*values), {}, {}};
  if (auto weight = evidence.value(parameter_of(evidence, "weight"), run)) {
    operands.weight = std::move(weight->data);
  }
  if (auto bias = evidence.value(parameter_of(evidence, "bias"), run)) {
    operands.bias = std::move(bias->data);
  }
  return operands;
}

bool is_norm_of(const Operands& operands) {
  return operands.weight.size() == operands.width() &&
         (operands.bias.empty() || operands.bias.size() == operands.width());
}

struct Made {
  const Variant* variant = nullptr;
  double rest = 0.0;
};

// The variant whose result is nearest to `output`.
std::optional<Made> nearest(const std::vector<Variant>& variants,
                            const Operands& operands,
                            const Values& output) {
  std::optional<Made> best;
  for (const Variant& variant : variants) {
    const double rest = distance(variant.compute(operands), output);
    if (std::isfinite(rest) && (!best || rest < best->rest)) {
      best = Made{&variant, rest};
    }
  }
  return best;
}

// The input from which a variant makes the reference's output best, and that variant.
struct Reproduction {
  const Match* input = nullptr;
  Operands candidate;
  Made right;
};

std::optional<Reproduction> reproduce(const Evidence& evidence,
                                      const std::vector<Variant>& variants,
                                      const Values& rows,
                                      bool is_norm) {
  std::optional<Reproduction> best;
  for (const Match* input : inputs_of(evidence, evidence.finding().id)) {
    const auto reference = operands_of(evidence, *input, WhichRun::kReference);
    auto candidate = operands_of(evidence, *input, WhichRun::kCandidate);
    if (!reference || !candidate || reference->input.shape != candidate->input.shape ||
        reference->input.shape[0] != rows.shape[0] ||
        (is_norm && !(is_norm_of(*reference) && is_norm_of(*candidate)))) {
      continue;
    }
    const auto right = nearest(variants, *reference, rows);
    if (right && reproduces(right->rest, rows.norm()) &&
        (!best || right->rest < best->right.rest)) {
      best = Reproduction{input, *std::move(candidate), *right};
    }
  }
  return best;
}

std::optional<Hypothesis> other_variant(const Evidence& evidence,
                                        const std::vector<Variant>& variants,
                                        bool is_norm) {
  const Sides& sides = *evidence.sides();
  const Sides rows = {sampled(sides.reference), sampled(sides.candidate), 0.0};
  const double share = std::sqrt(static_cast<double>(rows.reference.data.size()) /
                                 static_cast<double>(sides.reference.data.size()));
  const auto known = reproduce(evidence, variants, rows.reference, is_norm);
  if (!known) {
    return std::nullopt;
  }
  const auto made = nearest(variants, known->candidate, rows.candidate);
  const Made& right = known->right;
  const double before = distance(right.variant->compute(known->candidate), rows.candidate);
  if (!made || made->variant == right.variant || before <= 2.0 * right.rest ||
      made->rest > allowed_rest(before, share * evidence.bound())) {
    return std::nullopt;
  }
  return Hypothesis{.signature = Signature::kOtherVariant,
                    .sentence = fmt::format(
                        "the candidate computes {}, the reference {}; computed again from the "
                        "candidate's own {} that leaves {}, the reference's variant {}",
                        made->variant->name,
                        right.variant->name,
                        to_string(known->input->id),
                        short_number(made->rest),
                        short_number(before)),
                    .error = before,
                    .residual = beyond_replay(made->rest, right.rest),
                    .bits = bits_of_choice(static_cast<double>(variants.size()))};
}

bool may_be_variant(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  return sides != nullptr && evidence.finding().id.kind == Kind::kOutput &&
         !sides->reference.shape.empty() && sides->reference.shape.back() != 0;
}

}  // namespace

std::optional<Hypothesis> find_other_norm(const Evidence& evidence) {
  const bool has_weight = evidence.find(parameter_of(evidence, "weight")) != nullptr;
  return may_be_variant(evidence) && has_weight ? other_variant(evidence, norms(), true)
                                                : std::nullopt;
}

std::optional<Hypothesis> find_other_activation(const Evidence& evidence) {
  const bool has_weight = evidence.find(parameter_of(evidence, "weight")) != nullptr;
  return may_be_variant(evidence) && !has_weight ? other_variant(evidence, activations(), false)
                                                 : std::nullopt;
}

}  // namespace ttrace
