#include "gpt_model.h"

#include "moe_layer.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

namespace megatron_mini {

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
    : input_layernorm_(
          register_module("input_layernorm", std::make_shared<LayerNorm>(blueprint.model))),
      self_attention_(register_module(
          "self_attention", std::make_shared<SelfAttention>(blueprint, path + ".self_attention"))),
      pre_mlp_layernorm_(
          register_module("pre_mlp_layernorm", std::make_shared<LayerNorm>(blueprint.model))) {
  if (blueprint.model.experts > 1) {
    moe_ = register_module("mlp", std::make_shared<MoeLayer>(blueprint, path + ".mlp"));
  } else {
    mlp_ = register_module("mlp",
                           std::make_shared<Mlp>(blueprint, blueprint.model.ffn, path + ".mlp"));
  }
}

at::Tensor TransformerLayer::forward(const at::Tensor& input, const TokenPlaces& places) {
  ttrace::Scope scope(*this);
  const at::Tensor stream = scope.in(input);
  const at::Tensor attended =
      stream + self_attention_->forward(input_layernorm_->forward(stream), places);
  const at::Tensor normed = pre_mlp_layernorm_->forward(attended);
  return scope.out(attended + (moe_ != nullptr ? moe_->forward(normed, attended, places)
                                               : mlp_->forward(normed)));
}

Decoder::Decoder(const Blueprint& blueprint) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>("Layers"));
  for (std::int64_t i = 0; i < blueprint.model.layers; ++i) {
    const std::string number = std::to_string(i);
    layers_.push_back(layers->register_module(
        number, std::make_shared<TransformerLayer>(blueprint, "decoder.layers." + number)));
  }
  final_layernorm_ =
      register_module("final_layernorm", std::make_shared<LayerNorm>(blueprint.model));
}

at::Tensor Decoder::forward(at::Tensor stream, const TokenPlaces& places) {
  for (const auto& layer : layers_) {
    stream = layer->forward(stream, places);
  }
  return final_layernorm_->forward(stream);
}

GptModel::GptModel(const Blueprint& blueprint) {
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
  const at::Tensor stream = word_embeddings_->forward(tokens.t().contiguous());
  return output_layer_->forward(decoder_->forward(stream, places));
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
  return module.as<RowParallelLinear>() != nullptr && name == "bias"
             ? ParameterRole::kReplicatedBias
             : ParameterRole::kSplit;
}

}  // namespace

std::vector<ModelParameter> GptModel::model_parameters() const {
  std::vector<ModelParameter> result;
  for (const auto& module : named_modules()) {
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      if (item.key() != "expert_bias") {
        result.push_back({.path = module.key() + "." + item.key(),
                          .tensor = item.value(),
                          .role = role_of(module.key(), *module.value(), item.key())});
      }
    }
  }
  return result;
}

}  // namespace megatron_mini
