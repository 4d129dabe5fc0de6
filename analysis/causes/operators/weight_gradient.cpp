// The gradient of a linear module's weight computed again, g' x at sampled outputs, from the
// candidate's own gradient of the output and from what may have stood in for its input: what
// another layer or micro-batch has there, or the same numbers read in another order.
#include "analysis/causes/common/addends.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/common/replay.h"
#include "analysis/causes/common/storage_order.h"
#include "analysis/causes/signatures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// How the finding may have been made: g' x of `module`, every `stride`th row of [out, in].
struct Weight {
  std::string module;
  Values gradient;  // of the module's output, [rows, out]
  std::int64_t in = 0;
  std::size_t stride = 1;
};

std::optional<Weight> weight_of(const Evidence& evidence,
                                const Sides& sides,
                                const std::string& module) {
  constexpr std::size_t kOutputs = 64;  // looked at, of so many
  auto gradient = candidate_of(evidence, Kind::kGradOutput, module);
  if (evidence.finding().id.kind != Kind::kParamGrad || sides.shape().size() != 2 || !gradient ||
      gradient->shape.empty() || gradient->shape.back() != sides.shape()[0]) {
    return std::nullopt;
  }
  const auto out = static_cast<std::size_t>(sides.shape()[0]);
  return Weight{
      module, *std::move(gradient), sides.shape()[1], std::max<std::size_t>(1, out / kOutputs)};
}

// The numbers of `input` [rows, in] as they are read in another order than they are stored in.
Values misread(const Values& input, const Misreading& misreading, std::size_t parts) {
  const auto in = static_cast<std::size_t>(input.shape.back());
  const StoredMatrix stored{input.data.size() / in, in, parts};
  Values result = input;
  for (std::size_t i = 0; i < input.data.size(); ++i) {
    const MatrixPlace from = misreading.taken_for(stored, {i / in, i % in});
    result.data[i] = input.data[from.row * in + from.column];
  }
  return result;
}

// The module's input, and what may have stood in for it.
struct Operand {
  const Match* record = nullptr;
  std::optional<Misreading> misreading = {};
  std::string axis = {};  // whose ranks' parts a buffer holds; empty: it holds the whole
};

std::vector<Operand> operands_of(const Evidence& evidence, const Match& input) {
  std::vector<Operand> operands = {{&input}};
  for (const Match& match : evidence.matches()) {
    TensorId same = match.id;
    same.microbatch = input.id.microbatch;
    if (evidence.vocabulary().differ_in_number(Role::kLayers, match.id, input.id) ||
        (same == input.id && match.id != input.id)) {
      operands.push_back({&match});
    }
  }
  for (const Misreading& misreading : misreadings(false)) {
    operands.push_back({&input, misreading});
  }
  for (const std::string& axis : evidence.axes()) {
    for (const Misreading& misreading : misreadings(true)) {
      operands.push_back({&input, misreading, axis});
    }
  }
  return operands;
}

// The product with it; empty where it does not fit.
std::vector<double> product_with(const Evidence& evidence,
                                 const Weight& weight,
                                 const Operand& operand) {
  const auto input = evidence.candidate(operand.record);
  if (!input || input->shape.empty() || input->shape.back() != weight.in) {
    return {};
  }
  if (!operand.misreading) {
    return weight_gradient(weight.gradient, *input, weight.stride);
  }
  const auto parts =
      static_cast<std::size_t>(operand.axis.empty() ? 1 : evidence.axis_size(operand.axis));
  return input->data.size() / static_cast<std::size_t>(weight.in) % parts == 0
             ? weight_gradient(
                   weight.gradient, misread(*input, *operand.misreading, parts), weight.stride)
             : std::vector<double>();
}

Hypothesis from(const Evidence& evidence,
                const Weight& weight,
                const std::vector<Operand>& operands,
                const Replayed& made) {
  const TensorId& right = operands.front().record->id;
  const auto& [record, misreading, axis] = operands[made.other];
  const bool other_call = !misreading && record->id.path == right.path;
  const std::string what =
      misreading ? fmt::format("{} after a buffer that holds {} as {} was read as {}",
                               to_string(right),
                               axis.empty() ? "it"
                                            : fmt::format("the parts of the {} ranks of {}",
                                                          evidence.axis_size(axis),
                                                          axis),
                               order_text(misreading->stored, "features"),
                               order_text(misreading->read, "features"))
                 : fmt::format(
                       "{} instead of {}: what was saved for backward has been "
                       "overwritten, or belongs to another call",
                       to_string(record->id),
                       to_string(right));
  Hypothesis found = made.hypothesis(misreading   ? Signature::kWrongView
                                     : other_call ? Signature::kStale
                                                  : Signature::kWrongLayer,
                                     operands.size() - 1,
                                     "backward multiplied by " + what,
                                     fmt::format("gradient of {}'s output", weight.module));
  if (!axis.empty()) {
    found.named.axes = {axis};
  } else if (other_call) {
    found.named.microbatches = {record->id.microbatch};
  }
  return found;
}

Hypotheses other_operand(const Evidence& evidence, const Sides& sides) {
  const TensorId& id = evidence.finding().id;
  const std::string module = module_of(id.path);
  const auto weight = id.path == weight_id(id.step, module).path
                          ? weight_of(evidence, sides, module)
                          : std::nullopt;
  if (!weight) {
    return {};
  }
  TensorId output = as_kind(id, Kind::kOutput);
  output.path = module;
  Replay replay{
      rows_of(sides.reference, weight->stride), rows_of(sides.candidate, weight->stride), {}};
  Hypotheses found;
  for (const Match* input : inputs_of(evidence, output)) {
    // The candidate's own operands make the reference's gradient, too.
    replay.variants = {[&](WhichRun) { return product_with(evidence, *weight, {input}); }};
    const auto right = reproduce(replay);
    if (!right) {
      continue;
    }
    const std::vector<Operand> operands = operands_of(evidence, *input);
    replay.variants.clear();
    for (const Operand& operand : operands) {
      replay.variants.emplace_back(
          [&](WhichRun) { return product_with(evidence, *weight, operand); });
    }
    for (const Replayed& made : other_variants(evidence, replay, right)) {
      found.push_back(from(evidence, *weight, operands, made));
    }
    break;
  }
  return found;
}

// What it means that the gradient of a use is in the difference `a` times.
Meaning meaning_of_use(double a, double /*deviation*/) {
  return a < 0.0 ? Meaning{": the gradient of this use is not in the sum", {.factors = {1.0 + a}}}
                 : Meaning{};
}

// A weight that several modules use: the gradient of one use is not in the sum, or is there twice.
Hypotheses other_use(const Evidence& evidence, const Sides& sides) {
  const TensorId& finding = evidence.finding().id;
  Hypotheses uses;
  for (const Match& match : evidence.records(Kind::kOutput)) {
    if (match.id.microbatch != finding.microbatch || match.id.recompute != finding.recompute ||
        evidence.find(weight_id(finding.step, match.id.path)) != nullptr) {
      continue;
    }
    const auto weight = weight_of(evidence, sides, match.id.path);
    if (!weight) {
      continue;
    }
    const Sides at({{}, rows_of(sides.reference, weight->stride)},
                   {{}, rows_of(sides.candidate, weight->stride)});
    const double share = static_cast<double>(at.size()) / static_cast<double>(sides.size());
    for (const Match* input : inputs_of(evidence, match.id)) {
      auto product = product_with(evidence, *weight, {input});
      if (product.empty()) {
        continue;
      }
      const std::vector<ExtraAddend> use = {{std::move(product),
                                             "the gradient of the weight's use by " + match.id.path,
                                             meaning_of_use}};
      if (auto found = read_extra_addends(
              use, at.difference(), allowed_rest(at.error, std::sqrt(share) * evidence.bound()))) {
        uses.push_back(*std::move(found));
      }
    }
  }
  const std::size_t count = uses.size();
  return chosen_of(count, std::move(uses));
}

}  // namespace

Hypotheses find_weight_gradient(const Evidence& evidence, const Sides& sides) {
  Hypotheses found = other_operand(evidence, sides);
  append(found, other_use(evidence, sides));
  return found;
}

}  // namespace ttrace
