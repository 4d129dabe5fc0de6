#include "gpt_model.h"

#include "moe_layer.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace megatron_mini {

namespace {

// Of the weights of input_layernorm; another one than 1 is a planted bug.
double norm_gradient_factor(const Blueprint& blueprint) {
  const bool scaled = blueprint.bugs.on("fp8-norm-grad-times-tp");
  return scaled ? blueprint.bugs.size(blueprint.parallel.tp.size) : 1.0;
}

void freeze(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    parameter.requires_grad_(false);
  }
}

}  // namespace

at::Tensor activate(const at::Tensor& input, Activation kind) {
  if (kind == Activation::kGelu) {
    return at::gelu(input);
  }
  const auto halves = input.chunk(2, -1);  // this rank's gate and up
  return at::silu(halves[0]) * halves[1];
}

at::Tensor ActivationFunction::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  return scope.out(activate(scope.in(input), kind_));
}

Mlp::Mlp(const Blueprint& blueprint, std::int64_t ffn, const std::string& path) {
  const auto& model = blueprint.model;
  linear_fc1_ =
      register_module("linear_fc1",
                      std::make_shared<ColumnParallelLinear>(
                          model.hidden, model.gates() * ffn, blueprint, path + ".linear_fc1"));
  activation_ =
      register_module("activation", std::make_shared<ActivationFunction>(model.activation));
  linear_fc2_ = register_module(
      "linear_fc2",
      std::make_shared<RowParallelLinear>(ffn, model.hidden, blueprint, path + ".linear_fc2"));
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  return linear_fc2_->forward(activation_->forward(linear_fc1_->forward(input)));
}

TransformerLayer::TransformerLayer(const Blueprint& blueprint, const std::string& path)
    : path_(path),
      before_forward_(blueprint.before_forward),
      input_layernorm_(register_module(
          "input_layernorm",
          std::make_shared<LayerNorm>(
              blueprint,
              norm_gradient_factor(blueprint) *
                  blueprint.mutant.norm_gradient_factor(path, blueprint.parallel.tp)))),
      self_attention_(register_module(
          "self_attention", std::make_shared<SelfAttention>(blueprint, path + ".self_attention"))),
      self_attention_dropout_(register_module(
          "self_attention_dropout",
          std::make_shared<ResidualDropout>(blueprint, path + ".self_attention_dropout"))),
      pre_mlp_layernorm_(
          register_module("pre_mlp_layernorm", std::make_shared<LayerNorm>(blueprint))),
      mlp_dropout_(register_module(
          "mlp_dropout", std::make_shared<ResidualDropout>(blueprint, path + ".mlp_dropout"))) {
  if (blueprint.model.experts > 1) {
    moe_ = register_module("mlp", std::make_shared<MoeLayer>(blueprint, path + ".mlp"));
  } else {
    mlp_ = register_module("mlp",
                           std::make_shared<Mlp>(blueprint, blueprint.model.ffn, path + ".mlp"));
  }
}

at::Tensor TransformerLayer::forward(const at::Tensor& input, const TokenPlaces& places) {
  (*before_forward_)(path_);
  ttrace::Scope scope(*this);
  const at::Tensor stream = scope.in(input);
  const at::Tensor attention = self_attention_->forward(input_layernorm_->forward(stream), places);
  const at::Tensor attended = stream + self_attention_dropout_->forward(attention, places);
  const at::Tensor normed = pre_mlp_layernorm_->forward(attended);
  const at::Tensor mlp =
      moe_ != nullptr ? moe_->forward(normed, attended, places) : mlp_->forward(normed);
  return scope.out(attended + mlp_dropout_->forward(mlp, places));
}

Decoder::Decoder(const Blueprint& blueprint)
    : recompute_(blueprint.recompute),
      feeds_chunk_input_(blueprint.bugs.on("recompute-chunk-input")),
      parallel_(blueprint.parallel),
      before_forward_(blueprint.before_forward) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>("Layers"));
  for (int chunk = 0; chunk < parallel_.chunks; ++chunk) {
    const LayerRange range = layers_of(blueprint.model.layers, parallel_, chunk, blueprint.bugs);
    chunks_.push_back(range);
    for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
      const std::string number = std::to_string(i);
      layers_.push_back(layers->register_module(
          number,
          std::make_shared<TransformerLayer>(blueprint.of_layer(i), "decoder.layers." + number)));
      if (std::count(blueprint.model.frozen.begin(), blueprint.model.frozen.end(), i) > 0) {
        freeze(*layers_.back());
      }
    }
  }
  if (parallel_.is_last_stage()) {
    final_layernorm_ = register_module("final_layernorm", std::make_shared<LayerNorm>(blueprint));
  }
}

at::Tensor Decoder::forward(at::Tensor stream, const TokenPlaces& places, int chunk) {
  std::int64_t first = 0;  // among the layers of this stage
  for (int earlier = 0; earlier < chunk; ++earlier) {
    first += chunks_[static_cast<std::size_t>(earlier)].count;
  }
  const std::int64_t count = chunks_.at(static_cast<std::size_t>(chunk)).count;
  const bool is_recomputed = recompute_.parts == RecomputedParts::kFull;
  const std::int64_t step = is_recomputed ? recompute_.layers : count;
  for (std::int64_t i = first; i < first + count; i += step) {
    const std::int64_t size = std::min(step, first + count - i);
    const auto part = [this, places, i, size](const std::vector<at::Tensor>& inputs) {
      return run_layers(inputs[0], places, i, size);
    };
    stream = is_recomputed ? recompute({stream}, part) : part({stream});
  }
  if (!parallel_.ends(chunk)) {
    return stream;
  }
  (*before_forward_)("decoder.final_layernorm");
  return final_layernorm_->forward(stream);
}

at::Tensor Decoder::run_layers(at::Tensor stream,
                               const TokenPlaces& places,
                               std::int64_t first,
                               std::int64_t count) const {
  const at::Tensor input = stream;
  for (std::int64_t i = first; i < first + count; ++i) {
    TransformerLayer& layer = *layers_[static_cast<std::size_t>(i)];
    if (feeds_chunk_input_ && i > first) {
      // What is left of the layer before is that its parameters have gradients, of zeros.
      stream = layer.forward(input, places) + stream * 0.0;
    } else {
      stream = layer.forward(stream, places);
    }
  }
  return stream;
}

GptModel::GptModel(const Blueprint& blueprint)
    : parallel_(blueprint.parallel), before_forward_(blueprint.before_forward) {
  const bool is_last = parallel_.is_last_stage();
  const bool tied = blueprint.model.tied;
  if (parallel_.is_first_stage() || (is_last && tied)) {
    const auto embedding =
        register_module("embedding", std::make_shared<torch::nn::Module>("Embedding"));
    word_embeddings_ = embedding->register_module("word_embeddings",
                                                  std::make_shared<VocabularyEmbedding>(blueprint));
  }
  decoder_ = register_module("decoder", std::make_shared<Decoder>(blueprint));
  if (is_last) {
    output_layer_ = register_module(
        "output_layer",
        std::make_shared<OutputLayer>(blueprint, tied ? word_embeddings_->weight() : at::Tensor()));
  }
}

at::Tensor GptModel::forward(const at::Tensor& input, const TokenPlaces& places, int chunk) {
  at::Tensor stream = input;
  if (parallel_.begins(chunk)) {
    (*before_forward_)("embedding");
    stream = word_embeddings_->forward(input.t().contiguous());
  }
  const at::Tensor output = decoder_->forward(stream, places, chunk);
  if (!parallel_.ends(chunk)) {
    return output;
  }
  if (word_embeddings_) {
    (*before_forward_)("embedding");  // its weight may be the output layer's
  }
  (*before_forward_)("output_layer");
  return output_layer_->forward(output);
}

int GptModel::chunk_of(const std::string& path) const {
  for (int chunk = 0; chunk < parallel_.chunks; ++chunk) {
    const LayerRange& range = chunks()[static_cast<std::size_t>(chunk)];
    for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
      if (path.starts_with("decoder.layers." + std::to_string(i) + ".")) {
        return chunk;
      }
    }
  }
  const bool is_lookup = path.starts_with("embedding.") && parallel_.is_first_stage();
  return is_lookup ? 0 : parallel_.chunks - 1;
}

namespace {

// `module` at `path` owns parameter `name`.
ParameterRole role_of(const std::string& path,
                      const torch::nn::Module& module,
                      const std::string& name) {
  if (module.as<ExpertLinear>() != nullptr) {
    return path.ends_with(".linear_fc2") && name == "bias" ? ParameterRole::kExpertReplicated
                                                           : ParameterRole::kExpertSplit;
  }
  if (module.as<LayerNorm>() != nullptr) {
    return ParameterRole::kReplicatedNorm;
  }
  if (module.as<Router>() != nullptr) {
    return ParameterRole::kReplicatedRouter;
  }
  const auto* const column = module.as<ColumnParallelLinear>();
  const auto* const row = module.as<RowParallelLinear>();
  if (row != nullptr && name == "bias") {
    return ParameterRole::kReplicatedBias;
  }
  const bool is_whole =
      (column != nullptr && column->is_redundant()) || (row != nullptr && row->is_redundant());
  return is_whole ? ParameterRole::kWhole : ParameterRole::kSplit;
}

}  // namespace

std::vector<ModelParameter> GptModel::model_parameters() const {
  std::vector<ModelParameter> result;
  for (const auto& module : named_modules()) {
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      if (item.key() == "expert_bias") {
        continue;
      }
      ModelParameter parameter{.path = module.key() + "." + item.key(),
                               .tensor = item.value(),
                               .role = role_of(module.key(), *module.value(), item.key())};
      parameter.chunk = chunk_of(parameter.path);
      parameter.is_second_copy =
          !parallel_.is_first_stage() && parameter.path.starts_with("embedding.");
      result.push_back(std::move(parameter));
    }
  }
  return result;
}

}  // namespace megatron_mini
