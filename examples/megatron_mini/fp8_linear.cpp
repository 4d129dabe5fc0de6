#include "fp8_linear.h"

#include "error.h"
#include "straight_through.h"

#include <ATen/ATen.h>

#include <charconv>
#include <string_view>

namespace megatron_mini {

std::int64_t layer_number(std::string_view path) {
  constexpr std::string_view kLayers = "decoder.layers.";
  require<InternalError>(path.starts_with(kLayers), path, " does not belong to a layer");
  std::int64_t number = 0;
  std::from_chars(path.data() + kLayers.size(), path.data() + path.size(), number);
  return number;
}

bool computes_in_fp8(const Blueprint& blueprint, std::int64_t number) {
  const std::int64_t ends = blueprint.fp8->bf16_ends;
  return number >= ends && number < blueprint.model.layers - ends;
}

bool computes_in_fp8(const Blueprint& blueprint, const std::string& path) {
  return computes_in_fp8(blueprint, layer_number(path));
}

Fp8Linear::Operands Fp8Linear::operands_of(LinearSplit split, const Parallel& parallel) {
  const bool splits_inputs = split == LinearSplit::kInputs;
  const bool gathers_rows = !splits_inputs && parallel.sequence_parallel && parallel.tp.size > 1;
  std::vector<Group> tokens = {parallel.cp};
  if (parallel.own) {
    tokens.push_back(parallel.own->samples);
  }
  std::vector<Group> tokens_and_tp = tokens;
  tokens_and_tp.insert(tokens_and_tp.begin(), parallel.tp);
  return {Fp8Operand{.format = at::kFloat8_e4m3fn,
                     .holders = splits_inputs || gathers_rows ? tokens_and_tp : tokens,
                     .device = parallel.device},
          Fp8Operand{.format = at::kFloat8_e4m3fn,
                     .is_weight = true,
                     .holders = {parallel.tp},
                     .device = parallel.device},
          Fp8Operand{.format = at::kFloat8_e5m2,
                     .is_gradient = true,
                     .holders = splits_inputs ? tokens : tokens_and_tp,
                     .device = parallel.device}};
}

Fp8Linear::Fp8Linear(const Operands& operands, const Blueprint& blueprint) {
  for (std::size_t slot = 0; slot < operands.size(); ++slot) {
    quantisers_[slot] = blueprint.parts->quantiser(*blueprint.fp8, operands[slot]);
  }
}

Fp8Values Fp8Linear::quantise(Slot slot, const at::Tensor& tensor, ttrace::Scope& scope) {
  auto& quantiser = *quantisers_[static_cast<std::size_t>(slot)];
  if (quantiser.history().defined()) {
    scope.amax_history(quantiser.history(), slot);
  }
  Fp8Values result = quantiser.quantise(tensor);
  scope.scale(result.scale, slot);
  return result;
}

void Fp8Linear::record_operand(Slot slot, const at::Tensor& values, ttrace::Scope& scope) const {
  scope.operand(values, slot);
}

at::Tensor Fp8Linear::quantise_whole(Slot slot, const at::Tensor& tensor, ttrace::Scope& scope) {
  at::Tensor values = quantise(slot, tensor, scope).values;
  record_operand(slot, values, scope);
  return values;
}

at::Tensor Fp8Linear::input(const at::Tensor& tensor, ttrace::Scope& scope) {
  return straight_through(tensor, quantise(kInput, tensor, scope).values);
}

at::Tensor Fp8Linear::gathered(const at::Tensor& whole, const at::Tensor& /*mine*/) const {
  return whole;
}

at::Tensor Fp8Linear::consumed(const at::Tensor& whole,
                               const at::Tensor& mine,
                               ttrace::Scope& scope) const {
  at::Tensor taken = gathered(whole, mine);
  record_operand(kInput, taken, scope);
  return taken;
}

at::Tensor Fp8Linear::weight(const at::Tensor& tensor, ttrace::Scope& scope) {
  return straight_through(tensor, quantise_whole(kWeight, tensor, scope));
}

at::Tensor Fp8Linear::product(const at::Tensor& tensor, const torch::nn::Module& owner) {
  if (tensor.requires_grad()) {
    tensor.register_hook([this, &owner](const at::Tensor& gradient) {
      ttrace::Scope backward(owner);
      return quantise_whole(kGradient, gradient, backward);
    });
  }
  return tensor;
}

void check_fp8(const Blueprint& blueprint) {
  const std::int64_t block = blueprint.fp8 ? fp8_block(blueprint.fp8->recipe) : 0;
  const int tp = blueprint.parallel.tp.size;
  if (block == 0 || tp == 1) {
    return;
  }
  const auto check = [&](const char* name, std::int64_t size) {
    require<UsageError>(size / tp % block == 0,
                        "--tp ",
                        tp,
                        " leaves ",
                        size / tp,
                        " of ",
                        name,
                        " ",
                        size,
                        " to a rank, which cuts the blocks of ",
                        block,
                        " that share a scale in fp8.recipe; choose other sizes, or another recipe");
  };
  const ModelConfig& model = blueprint.model;
  check("hidden", model.hidden);
  check("ffn", model.ffn);
  check("the rows of linear_qkv,", (model.heads + 2 * model.query_groups) * model.head_size());
}

}  // namespace megatron_mini
