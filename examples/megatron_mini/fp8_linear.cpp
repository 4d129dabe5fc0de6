#include "fp8_linear.h"

#include "layers.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace megatron_mini {

namespace {

enum Slot : int { kInput, kWeight, kGradient };

// Forward another value, backward as if nothing had happened.
struct StraightThrough : torch::autograd::Function<StraightThrough> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& /*original*/,
                            const at::Tensor& value) {
    return value;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

at::Tensor quantise(Fp8Quantiser& quantiser,
                    const at::Tensor& tensor,
                    ttrace::Scope& scope,
                    Slot slot) {
  if (quantiser.history().defined()) {
    scope.amax_history(quantiser.history(), slot);
  }
  const Fp8Values result = quantiser.quantise(tensor);
  scope.scale(result.scale, slot);
  return result.values;
}

// N of "decoder.layers.N.mlp.linear_fc1".
std::int64_t layer_number(std::string_view path) {
  constexpr std::string_view kLayers = "decoder.layers.";
  TTRACE_CHECK(path.starts_with(kLayers), InternalError, path, " is in no layer");
  std::int64_t number = 0;
  std::from_chars(path.data() + kLayers.size(), path.data() + path.size(), number);
  return number;
}

std::vector<Fp8Quantiser*> quantisers_of(const torch::nn::Module& model) {
  std::vector<Fp8Quantiser*> result;
  const auto add = [&](Fp8Linear* linear) {
    if (linear != nullptr) {
      for (auto& quantiser : linear->quantisers()) {
        result.push_back(&quantiser);
      }
    }
  };
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (const auto* column = module->as<ColumnParallelLinear>()) {
      add(column->fp8());
    } else if (const auto* row = module->as<RowParallelLinear>()) {
      add(row->fp8());
    }
  }
  return result;
}

}  // namespace

std::unique_ptr<Fp8Linear> Fp8Linear::make(const Blueprint& blueprint,
                                           const std::string& path,
                                           LinearSplit split) {
  if (!blueprint.fp8) {
    return nullptr;
  }
  const std::int64_t layer = layer_number(path);
  const std::int64_t ends = blueprint.fp8->bf16_ends;
  if (layer < ends || layer >= blueprint.model.layers - ends) {
    return nullptr;
  }
  return std::unique_ptr<Fp8Linear>(new Fp8Linear(blueprint, split));
}

Fp8Linear::Fp8Linear(const Blueprint& blueprint, LinearSplit split) {
  const Parallel& ranks = blueprint.parallel;
  const bool splits_inputs = split == LinearSplit::kInputs;
  // With sequence parallelism the ranks of tp hold other rows of an input that is gathered.
  const bool input_is_split = splits_inputs || ranks.sequence_parallel;
  const std::vector<Group> tokens = {ranks.cp};
  const std::vector<Group> tokens_and_tp = {ranks.tp, ranks.cp};
  quantisers_.emplace_back(
      *blueprint.fp8,
      Fp8Quantiser::Operand{.format = at::kFloat8_e4m3fn,
                            .holders = input_is_split ? tokens_and_tp : tokens});
  quantisers_.emplace_back(
      *blueprint.fp8,
      Fp8Quantiser::Operand{
          .format = at::kFloat8_e4m3fn, .is_weight = true, .holders = {ranks.tp}});
  quantisers_.emplace_back(
      *blueprint.fp8,
      Fp8Quantiser::Operand{.format = at::kFloat8_e5m2,
                            .is_gradient = true,
                            .holders = splits_inputs ? tokens : tokens_and_tp});
}

at::Tensor Fp8Linear::input(const at::Tensor& tensor, ttrace::Scope& scope) {
  return StraightThrough::apply(tensor, quantise(quantisers_[kInput], tensor, scope, kInput));
}

at::Tensor Fp8Linear::product(const at::Tensor& input,
                              const at::Tensor& weight,
                              ttrace::Scope& scope,
                              const torch::nn::Module& owner) {
  const at::Tensor factor =
      StraightThrough::apply(weight, quantise(quantisers_[kWeight], weight, scope, kWeight));
  const at::Tensor result = at::linear(input, factor);
  if (result.requires_grad()) {
    result.register_hook([this, &owner](const at::Tensor& gradient) {
      ttrace::Scope backward(owner);
      return quantise(quantisers_[kGradient], gradient, backward, kGradient);
    });
  }
  return result;
}

void roll_fp8_histories(const torch::nn::Module& model, const Parallel& parallel) {
  std::vector<Fp8Quantiser*> quantisers = quantisers_of(model);
  std::erase_if(quantisers,
                [](const Fp8Quantiser* quantiser) { return !quantiser->history().defined(); });
  if (quantisers.empty()) {
    return;
  }
  std::vector<at::Tensor> collected;
  for (const auto* quantiser : quantisers) {
    collected.push_back(quantiser->collected());
  }
  at::Tensor amaxes = at::stack(collected);
  for (const Group& group : {parallel.tp, parallel.dp_cp}) {
    amaxes = all_reduce(amaxes, group, Reduction::kMax);
  }
  for (std::size_t i = 0; i < quantisers.size(); ++i) {
    quantisers[i]->roll(amaxes[static_cast<std::int64_t>(i)]);
  }
}

void check_fp8(const Blueprint& blueprint) {
  const std::int64_t block = blueprint.fp8 ? fp8_block(blueprint.fp8->recipe) : 0;
  const int tp = blueprint.parallel.tp.size;
  if (block == 0 || tp == 1) {
    return;
  }
  const auto check = [&](const char* name, std::int64_t size) {
    TTRACE_CHECK(size / tp % block == 0,
                 UsageError,
                 "--tp ",
                 tp,
                 " leaves ",
                 size / tp,
                 " of ",
                 name,
                 " ",
                 size,
                 " to a rank, which cuts blocks of ",
                 block,
                 " that fp8.recipe gives one scale; choose sizes or a recipe that fit");
  };
  const ModelConfig& model = blueprint.model;
  check("hidden", model.hidden);
  check("ffn", model.ffn);
  check("the rows of linear_qkv,", (model.heads + 2 * model.query_groups) * model.head_size());
}

}  // namespace megatron_mini
