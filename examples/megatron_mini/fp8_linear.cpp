#include "fp8_linear.h"

#include "layers.h"
#include "stage_layers.h"

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

// N of "decoder.layers.N.mlp.linear_fc1".
std::int64_t layer_number(std::string_view path) {
  constexpr std::string_view kLayers = "decoder.layers.";
  TTRACE_CHECK(path.starts_with(kLayers), InternalError, path, " is in no layer");
  std::int64_t number = 0;
  std::from_chars(path.data() + kLayers.size(), path.data() + path.size(), number);
  return number;
}

// Where a layer stands among those of this pipeline stage.
struct OwnPlace {
  std::int64_t number = 0;
  int chunk = 0;
};

OwnPlace own_place(std::int64_t layer, const Blueprint& blueprint) {
  OwnPlace place;
  for (int chunk = 0; chunk < blueprint.parallel.chunks; ++chunk) {
    const LayerRange range =
        layers_of(blueprint.model.layers, blueprint.parallel, chunk, blueprint.bugs);
    if (layer >= range.first && layer < range.first + range.count) {
      place.number += layer - range.first;
      place.chunk = chunk;
      break;
    }
    place.number += range.count;
  }
  return place;
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
  const OwnPlace own = own_place(layer, blueprint);
  const std::int64_t number = blueprint.bugs.on("bf16-layers-by-local-index") ? own.number : layer;
  const std::int64_t ends = blueprint.fp8->bf16_ends;
  const bool is_left_out = blueprint.bugs.on("fp8-first-chunk-only") && own.chunk > 0;
  if (number < ends || number >= blueprint.model.layers - ends || is_left_out) {
    return nullptr;
  }
  return std::unique_ptr<Fp8Linear>(new Fp8Linear(blueprint, path, split));
}

Fp8Linear::Fp8Linear(const Blueprint& blueprint, const std::string& path, LinearSplit split)
    : repeats_own_rows_(blueprint.bugs.on("fp8-casts-local-rows") &&
                        path == "decoder.layers.1.self_attention.linear_qkv"),
      shares_no_amax_(blueprint.bugs.on("fp8-amax-not-shared")),
      recomputes_with_newest_(blueprint.bugs.on("recompute-with-newer-scales")),
      recomputes_in_bf16_(blueprint.bugs.on("recompute-without-fp8")),
      turns_back_with_newest_(blueprint.bugs.on("fp8-live-scale-in-backward")) {
  const Parallel& ranks = blueprint.parallel;
  const bool splits_inputs = split == LinearSplit::kInputs;
  if (!splits_inputs && ranks.sequence_parallel) {
    rows_ = ranks.tp;
  }
  const bool input_is_split = splits_inputs || (rows_.size > 1 && !shares_no_amax_);
  const std::vector<Group> tokens = {ranks.cp};
  const std::vector<Group> tokens_and_tp = {ranks.tp, ranks.cp};
  const bool exchanged =
      blueprint.bugs.on("fp8-formats-exchanged") && path == "decoder.layers.1.mlp.linear_fc2";
  Fp8Quantiser::Operand input{.format = exchanged ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn,
                              .holders = input_is_split ? tokens_and_tp : tokens,
                              .is_signed = blueprint.bugs.on("fp8-signed-amax"),
                              .is_immovable = blueprint.bugs.on("fp8-history-not-rolled")};
  Fp8Quantiser::Operand weight = input;
  weight.is_weight = true;
  weight.holders = {ranks.tp};
  quantisers_.emplace_back(*blueprint.fp8, input);
  quantisers_.emplace_back(*blueprint.fp8, weight);
  quantisers_.emplace_back(
      *blueprint.fp8,
      Fp8Quantiser::Operand{.format = exchanged ? at::kFloat8_e4m3fn : at::kFloat8_e5m2,
                            .is_gradient = true,
                            .holders = splits_inputs ? tokens : tokens_and_tp,
                            .is_immovable = input.is_immovable});
}

Fp8Values Fp8Linear::quantise(int slot, const at::Tensor& tensor, ttrace::Scope& scope) {
  auto& quantiser = quantisers_[static_cast<std::size_t>(slot)];
  if (!is_active()) {
    return {.values = tensor, .scale = {}};
  }
  if (quantiser.history().defined()) {
    scope.amax_history(quantiser.history(), slot);
  }
  Fp8Values result = quantiser.quantise(tensor, recomputes_with_newest_ && is_recomputing());
  scope.scale(result.scale, slot);
  return result;
}

bool Fp8Linear::is_active() const {
  return !(recomputes_in_bf16_ && is_recomputing());
}

void Fp8Linear::record_operand(int slot, const at::Tensor& values, ttrace::Scope& scope) const {
  if (is_active()) {
    scope.operand(values, slot);
  }
}

at::Tensor Fp8Linear::quantise_whole(int slot, const at::Tensor& tensor, ttrace::Scope& scope) {
  at::Tensor values = quantise(slot, tensor, scope).values;
  record_operand(slot, values, scope);
  return values;
}

at::Tensor Fp8Linear::input(const at::Tensor& tensor, ttrace::Scope& scope) {
  // As if delayed scales moved after every forward: the one that this forward would have met.
  const at::Tensor moving =
      turns_back_with_newest_ ? quantisers_[kInput].newest_scale() : at::Tensor();
  const Fp8Values result = quantise(kInput, tensor, scope);
  input_scale_ = turns_back_with_newest_ ? moving : result.scale;
  return StraightThrough::apply(tensor, result.values);
}

at::Tensor Fp8Linear::gathered(const at::Tensor& whole, const at::Tensor& mine) const {
  if (rows_.size == 1 || !(repeats_own_rows_ || shares_no_amax_)) {
    return whole;
  }
  at::Tensor taken = mine.detach().repeat({rows_.size, 1, 1});
  if (shares_no_amax_) {
    // Codes of all ranks, times this rank's scale.
    const at::Tensor scales = all_gather(input_scale_.view({1}), rows_);
    const at::Tensor factors = (input_scale_ / scales).repeat_interleave(mine.size(0));
    taken = (whole.detach() * factors.view({-1, 1, 1})).to(whole.scalar_type());
  }
  return StraightThrough::apply(whole, taken);
}

at::Tensor Fp8Linear::consumed(const at::Tensor& whole,
                               const at::Tensor& mine,
                               ttrace::Scope& scope) const {
  at::Tensor taken = gathered(whole, mine);
  record_operand(kInput, taken, scope);
  return taken;
}

at::Tensor Fp8Linear::weight(const at::Tensor& tensor, ttrace::Scope& scope) {
  const at::Tensor factor = StraightThrough::apply(tensor, quantise_whole(kWeight, tensor, scope));
  if (turns_back_with_newest_ && factor.requires_grad()) {
    factor.register_hook([this, scale = input_scale_](const at::Tensor& gradient) {
      return gradient * (input_scale_ / scale).to(gradient.scalar_type());
    });
  }
  return factor;
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

void roll_fp8_histories(const torch::nn::Module& model,
                        const Parallel& parallel,
                        const Bugs& bugs) {
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
  std::vector<Group> holders = {parallel.tp, parallel.dp_cp};
  if (bugs.on("fp8-amax-over-wrong-group")) {
    holders = {parallel.dp};
  }
  for (const Group& group : holders) {
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
