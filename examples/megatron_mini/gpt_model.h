// A GPT as Megatron-LM builds it: pre-norm layers on a residual stream, named and split alike.
//
// Modules and parameters: embedding.word_embeddings, decoder.layers.N.{input_layernorm,
// self_attention.{linear_qkv, core_attention, linear_proj}, pre_mlp_layernorm, mlp.{linear_fc1,
// activation, linear_fc2}}, decoder.final_layernorm, output_layer; with experts, mlp.{router,
// experts.E.{linear_fc1, linear_fc2}, shared_expert.{linear_fc1, activation, linear_fc2}}.
#pragma once

#include "attention.h"
#include "layers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace megatron_mini {

class MoeLayer;

// gelu(x) by erf, or silu(gate) * up: [..., gates * f] -> [..., f].
[[nodiscard]] at::Tensor activate(const at::Tensor& input, Activation kind);

class ActivationFunction : public torch::nn::Module {
 public:
  explicit ActivationFunction(Activation kind) : kind_(kind) {}
  // [s, b, gates * f/tp] -> [s, b, f/tp]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);

 private:
  Activation kind_;
};

class Mlp : public torch::nn::Module {
 public:
  Mlp(const Blueprint& blueprint, std::int64_t ffn, const std::string& path);
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);  // [rows, b, h] -> [rows, b, h]

 private:
  std::shared_ptr<ColumnParallelLinear> linear_fc1_;
  std::shared_ptr<ActivationFunction> activation_;
  std::shared_ptr<RowParallelLinear> linear_fc2_;
};

class TransformerLayer : public torch::nn::Module {
 public:
  TransformerLayer(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);

 private:
  std::shared_ptr<LayerNorm> input_layernorm_;
  std::shared_ptr<SelfAttention> self_attention_;
  std::shared_ptr<LayerNorm> pre_mlp_layernorm_;
  std::shared_ptr<Mlp> mlp_;       // of a dense model
  std::shared_ptr<MoeLayer> moe_;  // of one with experts; its name is "mlp" as well
};

class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const Blueprint& blueprint);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(at::Tensor stream, const TokenPlaces& places);

 private:
  std::vector<std::shared_ptr<TransformerLayer>> layers_;
  std::shared_ptr<LayerNorm> final_layernorm_;
};

// What the gradient reduction has to know about a parameter. Replicated ones are whole on every tp
// rank; with sequence parallelism a rank's gradient of them is an addend that comes from its rows.
// Experts are the business of other ranks (parallel.h); the bias of an expert's linear_fc2 is whole
// on every rank of etp, of which the first adds it, so that the others' gradient of it is 0.
enum class ParameterRole : std::uint8_t {
  kSplit,
  kReplicatedNorm,
  kReplicatedBias,
  kReplicatedRouter,
  kExpertSplit,
  kExpertReplicated,
};

[[nodiscard]] inline bool is_of_expert(ParameterRole role) {
  return role == ParameterRole::kExpertSplit || role == ParameterRole::kExpertReplicated;
}

struct ModelParameter {
  std::string path;
  at::Tensor tensor;
  ParameterRole role = ParameterRole::kSplit;
};

class GptModel : public torch::nn::Module {
 public:
  explicit GptModel(const Blueprint& blueprint);

  // tokens [b, s] -> logits [s, b, padded/tp]
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens, const TokenPlaces& places);

  // In the order of named_parameters(), without the routers' biases, which no gradient changes.
  [[nodiscard]] std::vector<ModelParameter> model_parameters() const;

 private:
  std::shared_ptr<VocabularyEmbedding> word_embeddings_;
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<OutputLayer> output_layer_;
};

}  // namespace megatron_mini
