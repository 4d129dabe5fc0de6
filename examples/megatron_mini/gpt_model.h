// A GPT as Megatron-LM builds it: pre-norm layers on a residual stream, named and split alike.
//
// Modules and parameters: embedding.word_embeddings, decoder.layers.N.{input_layernorm,
// self_attention.{linear_qkv, core_attention, linear_proj}, pre_mlp_layernorm, mlp.{linear_fc1,
// activation, linear_fc2}}, decoder.final_layernorm, output_layer; with experts, mlp.{router,
// experts.E.{linear_fc1, linear_fc2}, shared_expert.{linear_fc1, activation, linear_fc2}}. N is
// global: a pipeline stage has some of the layers, the first one the embedding, the last one what
// follows the layers. Where the weights are tied the last stage has
// embedding.word_embeddings.weight as well, for its output layer.
#pragma once

#include "attention.h"
#include "blueprint.h"
#include "layers.h"
#include "mlp.h"
#include "model_parameter.h"
#include "moe_layer.h"
#include "stage_layers.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megatron_mini {

class TransformerLayer : public torch::nn::Module {
 public:
  TransformerLayer(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);
  // Where it divides the ranks in a way of its own.
  [[nodiscard]] const std::optional<LayerRanks>& ranks() const { return ranks_; }

 private:
  std::string path_;
  std::optional<LayerRanks> ranks_;
  std::shared_ptr<BeforeForward> before_forward_;
  std::shared_ptr<LayerNorm> input_layernorm_;
  std::shared_ptr<SelfAttention> self_attention_;
  std::shared_ptr<ResidualDropout> self_attention_dropout_;
  std::shared_ptr<LayerNorm> pre_mlp_layernorm_;
  std::shared_ptr<Mlp> mlp_;       // of a dense model
  std::shared_ptr<MoeLayer> moe_;  // of one with experts; its name is "mlp" as well
  std::shared_ptr<ResidualDropout> mlp_dropout_;
};

class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const Blueprint& blueprint);
  // The layers of a chunk, and the final norm behind the last of all. [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(at::Tensor stream, const TokenPlaces& places, int chunk);
  [[nodiscard]] const std::vector<LayerRange>& chunks() const { return chunks_; }

 protected:
  // Layers first .. first + count - 1 of this stage. Takes and returns what tp ranks hold of the
  // stream, however these layers divide it.
  [[nodiscard]] virtual at::Tensor run_layers(at::Tensor stream,
                                              const TokenPlaces& places,
                                              std::int64_t first,
                                              std::int64_t count) const;
  // Layer `number` of this stage.
  [[nodiscard]] TransformerLayer& layer(std::int64_t number) const {
    return *layers_.at(static_cast<std::size_t>(number));
  }

 private:
  RecomputePlan recompute_;
  Parallel parallel_;
  std::shared_ptr<BeforeForward> before_forward_;
  std::vector<LayerRange> chunks_;
  std::vector<std::shared_ptr<TransformerLayer>> layers_;  // of all chunks
  std::shared_ptr<LayerNorm> final_layernorm_;             // on the last stage
};

class GptModel : public torch::nn::Module {
 public:
  explicit GptModel(const Blueprint& blueprint);

  // One of this stage's chunks. The first of all takes tokens [b, s] and the last one gives logits
  // [s, b, padded/tp]; between chunks there is the stream [rows, b, h].
  [[nodiscard]] at::Tensor forward(const at::Tensor& input,
                                   const TokenPlaces& places,
                                   int chunk = 0);

  // In the order of named_parameters(), without the routers' biases, which no gradient changes.
  [[nodiscard]] std::vector<ModelParameter> model_parameters() const;
  // The layers of this stage's chunks.
  [[nodiscard]] const std::vector<LayerRange>& chunks() const { return decoder_->chunks(); }

 private:
  // The chunk that a parameter belongs to.
  [[nodiscard]] int chunk_of(const std::string& path) const;
  // Those of the parameter's layer.
  [[nodiscard]] std::optional<LayerRanks> ranks_of(const std::string& path) const;

  Parallel parallel_;
  std::shared_ptr<BeforeForward> before_forward_;
  std::shared_ptr<VocabularyEmbedding> word_embeddings_;  // null where this stage has none
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<OutputLayer> output_layer_;  // null but on the last stage
};

}  // namespace megatron_mini
