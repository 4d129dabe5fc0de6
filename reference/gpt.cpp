#include "gpt.h"

#include "precision.h"

#include <ttrace/scope.h>

#include <algorithm>
#include <string>

namespace ttrace::reference {
namespace {

// Those that may compute in FP8.
std::vector<Linear*> linears_of(const TransformerLayer& layer) {
  if (layer.mlp == nullptr) {
    return {};  // experts do not, see check()
  }
  return {layer.self_attention->linear_qkv.get(),
          layer.self_attention->linear_proj.get(),
          layer.mlp->linear_fc1.get(),
          layer.mlp->linear_fc2.get()};
}

}  // namespace

TransformerLayer::TransformerLayer(const ModelConfig& model,
                                   const at::TensorOptions& options,
                                   const std::string& path)
    : input_layernorm(
          register_module("input_layernorm",
                          std::make_shared<LayerNorm>(model.hidden, model.norm_epsilon, options))),
      self_attention(register_module(
          "self_attention",
          std::make_shared<SelfAttention>(model, options, path + ".self_attention"))),
      pre_mlp_layernorm(
          register_module("pre_mlp_layernorm",
                          std::make_shared<LayerNorm>(model.hidden, model.norm_epsilon, options))),
      attention_dropout_(model.dropout, path + ".self_attention_dropout"),
      mlp_dropout_(model.dropout, path + ".mlp_dropout") {
  if (model.experts > 1) {
    moe = register_module("mlp", std::make_shared<MixtureOfExperts>(model, options));
  } else {
    mlp = register_module("mlp", std::make_shared<Mlp>(model, model.ffn, options));
  }
}

at::Tensor TransformerLayer::dropped(const at::Tensor& x,
                                     const Dropout& dropout,
                                     const char* name,
                                     const Draw& draw) const {
  if (!dropout.active()) {
    return x;
  }
  Scope scope(*this, name);
  const at::Tensor input = scope.in(x);  // [S, B, H]
  const at::Tensor kept = scope.mask(dropout.kept(input.sizes(), 1, draw).to(input.device()));
  return scope.out(dropout.apply(input, kept));
}

at::Tensor TransformerLayer::forward(const at::Tensor& input,
                                     const RotaryTable& rotary,
                                     const at::Tensor& documents,
                                     const Draw& draw,
                                     Routing& routing) const {
  Scope scope(*this);
  at::Tensor x = scope.in(input);  // [S, B, H], the residual stream
  const at::Tensor attention =
      self_attention->forward(input_layernorm->forward(x), rotary, documents, draw);
  x = x + dropped(attention, attention_dropout_, "self_attention_dropout", draw);
  const at::Tensor normed = pre_mlp_layernorm->forward(x);
  const at::Tensor block = moe != nullptr ? moe->forward(normed, routing) : mlp->forward(normed);
  x = x + dropped(block, mlp_dropout_, "mlp_dropout", draw);
  return scope.out(x);
}

OutputLayer::OutputLayer(const ModelConfig& model, const at::TensorOptions& options) {
  if (!model.tied) {
    weight = register_parameter("weight", at::empty({model.vocabulary, model.hidden}, options));
  }
}

at::Tensor OutputLayer::forward(const at::Tensor& x, const at::Tensor& shared) const {
  Scope scope(*this);
  return scope.out(at::linear(scope.in(x), weight.defined() ? weight : shared));
}

Gpt::Gpt(const ModelConfig& model, Precision precision, c10::Device device) : model_(model) {
  const at::TensorOptions options = at::TensorOptions(device).dtype(working_type(precision));
  auto embedding = register_module("embedding", std::make_shared<torch::nn::Module>("embedding"));
  word_embeddings = embedding->register_module(
      "word_embeddings", std::make_shared<Embedding>(model.vocabulary, model.hidden, options));

  auto decoder = register_module("decoder", std::make_shared<torch::nn::Module>("decoder"));
  auto list = decoder->register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (std::int64_t n = 0; n < model.layers; ++n) {
    const std::string number = std::to_string(n);
    layers.push_back(list->register_module(
        number, std::make_shared<TransformerLayer>(model, options, "decoder.layers." + number)));
    if (std::count(model.frozen.begin(), model.frozen.end(), n) > 0) {
      for (at::Tensor& parameter : layers.back()->parameters()) {
        parameter.requires_grad_(false);
      }
    }
  }
  final_layernorm = decoder->register_module(
      "final_layernorm", std::make_shared<LayerNorm>(model.hidden, model.norm_epsilon, options));
  output_layer = register_module("output_layer", std::make_shared<OutputLayer>(model, options));
}

void Gpt::use_fp8(const Fp8Config& config) {
  for (std::int64_t n = 0; n < model_.layers; ++n) {
    if (config.has_layer(n, model_.layers)) {
      for (Linear* linear : linears_of(*layers[static_cast<std::size_t>(n)])) {
        linear->use_fp8(config);
      }
    }
  }
}

void Gpt::end_step() {
  for (const auto& layer : layers) {
    for (Linear* linear : linears_of(*layer)) {
      linear->end_step();
    }
  }
}

at::Tensor Gpt::forward(const at::Tensor& tokens, const Packing& packing, const Draw& draw) const {
  Routing nothing;
  return forward(tokens, packing, draw, nothing);
}

at::Tensor Gpt::forward(const at::Tensor& tokens,
                        const Packing& packing,
                        const Draw& draw,
                        Routing& routing) const {
  RotaryTable rotary = rotary_table(tokens.size(1),
                                    model_.head_size(),
                                    model_.rotary_base,
                                    in_high_precision(word_embeddings->weight.options()));
  if (packing.positions.defined()) {
    rotary = at_positions(rotary, packing.positions);
  }

  at::Tensor x = word_embeddings->forward(tokens.t());  // [S, B, H]
  for (const auto& layer : layers) {
    x = layer->forward(x, rotary, packing.documents, draw, routing);
  }
  return output_layer->forward(final_layernorm->forward(x), word_embeddings->weight);
}

void Gpt::update_expert_biases(const std::vector<at::Tensor>& loads) {
  for (std::size_t n = 0; n < layers.size(); ++n) {
    at::Tensor& bias = layers[n]->moe->router->expert_bias;
    bias.copy_(updated_bias(bias, loads[n], model_.expert_bias));
  }
}

std::vector<NamedTensor> Gpt::expert_biases() const {
  std::vector<NamedTensor> result;
  for (std::size_t n = 0; model_.expert_bias > 0.0 && n < layers.size(); ++n) {
    result.push_back({"decoder.layers." + std::to_string(n) + ".mlp.router.expert_bias",
                      layers[n]->moe->router->expert_bias});
  }
  return result;
}

}  // namespace ttrace::reference
