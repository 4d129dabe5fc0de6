// The model: embedding, L layers, a last norm, logits.
//
//   x = embedding(tokens)
//   each layer:  x = x + dropout(attention(norm(x)));  x = x + dropout(mlp(norm(x)))
//                where mlp may be a mixture of experts (moe.h)
//   logits = norm(x) W^T
//
// Sources: Radford et al., "Language models are unsupervised multitask learners" (2019), section
// 2.3 for norms before each block and after the last; Press and Wolf, "Using the output embedding
// to improve language models" (2017) for tied weights.
//
// Module names are the canonical paths of TTrace (docs/trace_format.md).
#pragma once

#include "attention.h"
#include "config.h"
#include "dropout.h"
#include "layers.h"
#include "mlp.h"
#include "moe.h"

#include <ttrace/session.h>

#include <memory>
#include <string>
#include <vector>

namespace ttrace::reference {

class TransformerLayer : public torch::nn::Module {
 public:
  // `path` of this module in the model.
  TransformerLayer(const ModelConfig& model,
                   const at::TensorOptions& options,
                   const std::string& path);
  // [S, B, H] -> same
  at::Tensor forward(const at::Tensor& input,
                     const RotaryTable& rotary,
                     const at::Tensor& documents,
                     const Draw& draw,
                     Routing& routing) const;

  std::shared_ptr<LayerNorm> input_layernorm;
  std::shared_ptr<SelfAttention> self_attention;
  std::shared_ptr<LayerNorm> pre_mlp_layernorm;
  std::shared_ptr<Mlp> mlp;               // of a dense model
  std::shared_ptr<MixtureOfExperts> moe;  // of another one; its name is "mlp" as well

 private:
  // What a block gives to the stream, some of it dropped. `name` of the dropout.
  at::Tensor dropped(const at::Tensor& x,
                     const Dropout& dropout,
                     const char* name,
                     const Draw& draw) const;

  Dropout attention_dropout_;
  Dropout mlp_dropout_;
};

// logits = x W^T, without bias.
class OutputLayer : public torch::nn::Module {
 public:
  OutputLayer(const ModelConfig& model, const at::TensorOptions& options);
  // [S, B, H] -> [S, B, V]; `shared` is used where the model is tied.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& shared) const;

  at::Tensor weight;  // [V, H]; undefined where the model is tied
};

// Where the tokens of packed documents stand, as in Samples; undefined: a sample is one document.
struct Packing {
  at::Tensor positions;  // [B, S]
  at::Tensor documents;  // [B, S]
};

class Gpt : public torch::nn::Module {
 public:
  Gpt(const ModelConfig& model, Precision precision, c10::Device device = at::kCPU);
  // [B, S] i64 -> logits [S, B, V]; a model with dropout needs `draw`. Requires: with experts,
  // `routing` has its tokens.
  at::Tensor forward(const at::Tensor& tokens,
                     const Packing& packing,
                     const Draw& draw,
                     Routing& routing) const;
  // The output of a dense model.
  at::Tensor forward(const at::Tensor& tokens,
                     const Packing& packing = {},
                     const Draw& draw = {}) const;

  // The linears of all layers but the first and last ones, as `config` says, compute in FP8.
  void use_fp8(const Fp8Config& config);
  // After every step, because FP8 scales may follow from past ones.
  void end_step();

  // After a step in which layer n sent loads[n] [E] tokens to its experts.
  void update_expert_biases(const std::vector<at::Tensor>& loads);
  // What update_expert_biases() changes.
  [[nodiscard]] std::vector<NamedTensor> expert_biases() const;

  std::shared_ptr<Embedding> word_embeddings;
  std::vector<std::shared_ptr<TransformerLayer>> layers;
  std::shared_ptr<LayerNorm> final_layernorm;
  std::shared_ptr<OutputLayer> output_layer;

 private:
  ModelConfig model_;
};

}  // namespace ttrace::reference
