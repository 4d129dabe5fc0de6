// Activations and norms computed again from recorded inputs. The variant that makes the reference's
// output from the reference's input says which tensor is the input and what is right; the variant
// that makes the candidate's output from the candidate's input says what it did instead.
#include "analysis/causes/common/modules.h"
#include "analysis/causes/common/replay.h"
#include "analysis/causes/signatures.h"
#include "analysis/checks/normalisation.h"

#include <fmt/core.h>

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

// What a module may compute, by its operands.
struct Formula {
  std::string name;
  std::function<std::vector<double>(const Operands&)> compute;
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

Formula plain(const std::string& name, Function f) {
  return {name, [f](const Operands& operands) {
            std::vector<double> output = operands.input.data;
            std::ranges::transform(output, output.begin(), f);
            return output;
          }};
}

enum class Gate { kFirstHalf, kSecondHalf, kEven };

Formula gated(const std::string& name, Function f, Gate gate) {
  return {name, [f, gate](const Operands& operands) {
            const std::size_t half = operands.width() / 2;
            std::vector<double> output(operands.input.data.size() / operands.width() * half);
            for (std::size_t i = 0; i < output.size(); ++i) {
              const double* row = operands.input.data.data() + i / half * operands.width();
              const std::size_t at = i % half;
              const double left = gate == Gate::kEven ? row[2 * at] : row[at];
              const double right = gate == Gate::kEven ? row[2 * at + 1] : row[at + half];
              output[i] = gate == Gate::kSecondHalf ? left * f(right) : f(left) * right;
            }
            return output;
          }};
}

std::vector<Formula> activations() {
  std::vector<Formula> formulas;
  const std::array<std::pair<std::string, Function>, 6> functions = {
      {{"GELU (erf)", gelu},
       {"GELU (tanh)", gelu_tanh},
       {"SiLU", silu},
       {"GELU (sigmoid)", gelu_sigmoid},
       {"ReLU", relu},
       {"no activation", identity}}};
  for (const auto& [name, f] : functions) {
    formulas.push_back(plain(name, f));
    formulas.push_back(gated(name + " of the first half times the second", f, Gate::kFirstHalf));
    formulas.push_back(gated(name + " of the second half times the first", f, Gate::kSecondHalf));
    formulas.push_back(gated(name + " of even numbers times odd ones", f, Gate::kEven));
  }
  return formulas;
}

std::vector<Formula> norms() {
  std::vector<Formula> formulas;
  for (const Normalisation& normalisation : known_normalisations()) {
    formulas.push_back({normalisation.name(), [normalisation](const Operands& operands) {
                          const std::size_t width = operands.width();
                          std::vector<double> output = operands.input.data;
                          for (std::size_t at = 0; at < output.size(); at += width) {
                            const auto row = std::span(output).subspan(at, width);
                            normalisation.apply(row);
                            for (std::size_t i = 0; i < width; ++i) {
                              row[i] = row[i] * operands.weight[i] +
                                       (operands.bias.empty() ? 0.0 : operands.bias[i]);
                            }
                          }
                          return output;
                        }});
  }
  return formulas;
}

// Every few rows of a tensor, as a matrix.
Values sampled(const Values& values) {
  constexpr std::size_t kLookedAt = 512;
  const std::int64_t width = values.shape.back();
  const std::size_t rows = values.data.size() / static_cast<std::size_t>(width);
  std::vector<double> data = rows_of(values, std::max<std::size_t>(1, rows / kLookedAt) | 1U);
  return {{std::ssize(data) / width, width}, std::move(data)};
}

// Nothing where `input` is no input of a module with such weights and `rows` rows.
std::optional<Operands> operands_of(const Evidence& evidence,
                                    const Match& input,
                                    WhichRun run,
                                    std::int64_t rows) {
  const auto values = evidence.value(&input, run);
  if (!values || values->shape.empty() || values->shape.back() < 2) {
    return std::nullopt;
  }
  const auto numbers_of = [&](const TensorId& parameter) {
    return evidence.value(parameter, run).value_or(Values()).data;
  };
  const TensorId& id = evidence.finding().id;
  Operands operands{sampled(*values),
                    numbers_of(weight_id(id.step, id.path)),
                    numbers_of(bias_id(id.step, id.path))};
  const auto fits = [&](const std::vector<double>& numbers) {
    return numbers.empty() || numbers.size() == operands.width();
  };
  return operands.input.shape[0] == rows && fits(operands.weight) && fits(operands.bias)
             ? std::optional(std::move(operands))
             : std::nullopt;
}

}  // namespace

Hypotheses find_other_variant(const Evidence& evidence, const Sides& sides) {
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kOutput || sides.shape().empty()) {
    return {};
  }
  const bool is_norm = evidence.find(weight_id(id.step, id.path)) != nullptr;
  const std::vector<Formula> formulas = is_norm ? norms() : activations();
  const Values rows = sampled(sides.reference);
  Replay replay{rows.data, sampled(sides.candidate).data, {}};
  // The input from which a formula makes the reference's output best.
  std::optional<Reproduced> right;
  Hypotheses found;
  for (const Match* input : inputs_of(evidence, id)) {
    const auto reference = operands_of(evidence, *input, WhichRun::kReference, rows.shape[0]);
    const auto candidate = operands_of(evidence, *input, WhichRun::kCandidate, rows.shape[0]);
    if (!reference || !candidate || reference->input.shape != candidate->input.shape) {
      continue;
    }
    replay.variants.clear();
    for (const Formula& formula : formulas) {
      replay.variants.emplace_back([&](WhichRun run) {
        return formula.compute(run == WhichRun::kCandidate ? *candidate : *reference);
      });
    }
    const auto made = reproduce(replay);
    if (!made || (right && right->rest <= made->rest)) {
      continue;
    }
    right = made;
    found.clear();
    for (const Replayed& other : other_variants(evidence, replay, right)) {
      found.push_back(other.hypothesis(Signature::kOtherVariant,
                                       formulas.size(),
                                       fmt::format("the candidate computes {}, the reference {}",
                                                   formulas[other.other].name,
                                                   formulas[other.right].name),
                                       to_string(input->id)));
    }
  }
  return found;
}

}  // namespace ttrace
