#include "gpt_model.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace megatron_mini {

at::Tensor ActivationFunction::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  if (kind_ == Activation::kGelu) {
    return scope.out(at::gelu(x));
  }
  const auto halves = x.chunk(2, -1);  // this rank's gate and up
  return scope.out(at::silu(halves[0]) * halves[1]);
}

Mlp::Mlp(const Blueprint& blueprint, const std::string& path) {
  const auto& model = blueprint.model;
  linear_fc1_ = register_module(
      "linear_fc1",
      std::make_shared<ColumnParallelLinear>(
          model.hidden, model.gates() * model.ffn, blueprint, path + ".linear_fc1"));
  activation_ =
      register_module("activation", std::make_shared<ActivationFunction>(model.activation));
  linear_fc2_ = register_module("linear_fc2",
                                std::make_shared<RowParallelLinear>(
                                    model.ffn, model.hidden, blueprint, path + ".linear_fc2"));
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  return linear_fc2_->forward(activation_->forward(linear_fc1_->forward(input)));
}

TransformerLayer::TransformerLayer(const Blueprint& blueprint, const std::string& path)
    : path_(path),
      before_forward_(blueprint.before_forward),
      input_layernorm_(
          register_module("input_layernorm", std::make_shared<LayerNorm>(blueprint.model))),
      self_attention_(register_module(
          "self_attention", std::make_shared<SelfAttention>(blueprint, path + ".self_attention"))),
      self_attention_dropout_(register_module(
          "self_attention_dropout",
          std::make_shared<ResidualDropout>(blueprint, path + ".self_attention_dropout"))),
      pre_mlp_layernorm_(
          register_module("pre_mlp_layernorm", std::make_shared<LayerNorm>(blueprint.model))),
      mlp_(register_module("mlp", std::make_shared<Mlp>(blueprint, path + ".mlp"))),
      mlp_dropout_(register_module(
          "mlp_dropout", std::make_shared<ResidualDropout>(blueprint, path + ".mlp_dropout"))) {}

at::Tensor TransformerLayer::forward(const at::Tensor& input, const TokenPlaces& places) {
  (*before_forward_)(path_);
  ttrace::Scope scope(*this);
  const at::Tensor stream = scope.in(input);
  const at::Tensor attention = self_attention_->forward(input_layernorm_->forward(stream), places);
  const at::Tensor attended = stream + self_attention_dropout_->forward(attention, places);
  const at::Tensor mlp = mlp_->forward(pre_mlp_layernorm_->forward(attended));
  return scope.out(attended + mlp_dropout_->forward(mlp, places));
}

Decoder::Decoder(const Blueprint& blueprint)
    : recompute_(blueprint.recompute),
      feeds_chunk_input_(blueprint.bugs.on("recompute-chunk-input")),
      before_forward_(blueprint.before_forward) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>("Layers"));
  for (std::int64_t i = 0; i < blueprint.model.layers; ++i) {
    const std::string number = std::to_string(i);
    layers_.push_back(layers->register_module(
        number,
        std::make_shared<TransformerLayer>(blueprint.of_layer(i), "decoder.layers." + number)));
    const auto& frozen = blueprint.model.frozen;
    if (std::find(frozen.begin(), frozen.end(), i) != frozen.end()) {
      for (auto& parameter : layers_.back()->parameters()) {
        parameter.requires_grad_(false);
      }
    }
  }
  final_layernorm_ =
      register_module("final_layernorm", std::make_shared<LayerNorm>(blueprint.model));
}

at::Tensor Decoder::forward(at::Tensor stream, const TokenPlaces& places) {
  const auto total = layers_.size();
  if (recompute_.parts == RecomputedParts::kFull) {
    const auto step = static_cast<std::size_t>(recompute_.layers);
    for (std::size_t first = 0; first < total; first += step) {
      const auto count = std::min(step, total - first);
      stream = recompute({stream}, [this, places, first, count](const auto& inputs) {
        return run_layers(inputs[0], places, first, count);
      });
    }
  } else {
    stream = run_layers(stream, places, 0, total);
  }
  (*before_forward_)("decoder.final_layernorm");
  return final_layernorm_->forward(stream);
}

at::Tensor Decoder::run_layers(at::Tensor stream,
                               const TokenPlaces& places,
                               std::size_t first,
                               std::size_t count) const {
  const at::Tensor input = stream;
  for (std::size_t i = first; i < first + count; ++i) {
    if (feeds_chunk_input_ && i > first) {
      // What is left of the layer before is that its parameters have gradients, of zeros.
      stream = layers_[i]->forward(input, places) + stream * 0.0;
    } else {
      stream = layers_[i]->forward(stream, places);
    }
  }
  return stream;
}

GptModel::GptModel(const Blueprint& blueprint) : before_forward_(blueprint.before_forward) {
  const auto embedding =
      register_module("embedding", std::make_shared<torch::nn::Module>("Embedding"));
  word_embeddings_ = embedding->register_module("word_embeddings",
                                                std::make_shared<VocabularyEmbedding>(blueprint));
  decoder_ = register_module("decoder", std::make_shared<Decoder>(blueprint));
  output_layer_ = register_module(
      "output_layer",
      std::make_shared<OutputLayer>(
          blueprint, blueprint.model.tied ? word_embeddings_->weight() : at::Tensor()));
}

at::Tensor GptModel::forward(const at::Tensor& tokens, const TokenPlaces& places) {
  (*before_forward_)("embedding");
  const at::Tensor stream = word_embeddings_->forward(tokens.t().contiguous());
  const at::Tensor decoded = decoder_->forward(stream, places);
  (*before_forward_)("output_layer");
  return output_layer_->forward(decoded);
}

namespace {

ParameterRole role_of(const torch::nn::Module& module, const std::string& name) {
  if (module.as<LayerNorm>() != nullptr) {
    return ParameterRole::kReplicatedNorm;
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
      result.push_back({.path = module.key() + "." + item.key(),
                        .tensor = item.value(),
                        .role = role_of(*module.value(), item.key())});
    }
  }
  return result;
}

}  // namespace megatron_mini
