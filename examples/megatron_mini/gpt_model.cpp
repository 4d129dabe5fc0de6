#include "gpt_model.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

namespace megatron_mini {

namespace {

// Of the weights of input_layernorm; another one than 1 is a planted bug.
double norm_gradient_factor(const Blueprint& blueprint) {
  const bool scaled = blueprint.bugs.on("fp8-norm-grad-times-tp");
  return scaled ? blueprint.bugs.size(blueprint.parallel.tp.size) : 1.0;
}

}  // namespace

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
          register_module("input_layernorm",
                          std::make_shared<LayerNorm>(blueprint, norm_gradient_factor(blueprint)))),
      self_attention_(register_module(
          "self_attention", std::make_shared<SelfAttention>(blueprint, path + ".self_attention"))),
      pre_mlp_layernorm_(
          register_module("pre_mlp_layernorm", std::make_shared<LayerNorm>(blueprint))),
      mlp_(register_module("mlp", std::make_shared<Mlp>(blueprint, path + ".mlp"))) {}

at::Tensor TransformerLayer::forward(const at::Tensor& input, const TokenPlaces& places) {
  (*before_forward_)(path_);
  ttrace::Scope scope(*this);
  const at::Tensor stream = scope.in(input);
  const at::Tensor attended =
      stream + self_attention_->forward(input_layernorm_->forward(stream), places);
  return scope.out(attended + mlp_->forward(pre_mlp_layernorm_->forward(attended)));
}

Decoder::Decoder(const Blueprint& blueprint)
    : parallel_(blueprint.parallel), before_forward_(blueprint.before_forward) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>("Layers"));
  for (int chunk = 0; chunk < parallel_.chunks; ++chunk) {
    const LayerRange range = layers_of(blueprint.model.layers, parallel_, chunk, blueprint.bugs);
    chunks_.push_back(range);
    for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
      const std::string number = std::to_string(i);
      layers_.push_back(layers->register_module(
          number, std::make_shared<TransformerLayer>(blueprint, "decoder.layers." + number)));
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
  for (std::int64_t i = first; i < first + count; ++i) {
    stream = layers_[static_cast<std::size_t>(i)]->forward(stream, places);
  }
  if (!parallel_.ends(chunk)) {
    return stream;
  }
  (*before_forward_)("decoder.final_layernorm");
  return final_layernorm_->forward(stream);
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

std::vector<ModelParameter> GptModel::model_parameters() const {
  std::vector<ModelParameter> result;
  for (const auto& module : named_modules()) {
    const bool is_norm = module.value()->as<LayerNorm>() != nullptr;
    const bool is_row_parallel = module.value()->as<RowParallelLinear>() != nullptr;
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      ModelParameter parameter{.path = module.key() + "." + item.key(), .tensor = item.value()};
      parameter.chunk = chunk_of(parameter.path);
      parameter.is_second_copy =
          !parallel_.is_first_stage() && parameter.path.starts_with("embedding.");
      if (is_norm) {
        parameter.role = ParameterRole::kReplicatedNorm;
      } else if (is_row_parallel && item.key() == "bias") {
        parameter.role = ParameterRole::kReplicatedBias;
      }
      result.push_back(std::move(parameter));
    }
  }
  return result;
}

}  // namespace megatron_mini
