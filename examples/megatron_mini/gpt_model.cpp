#include "gpt_model.h"

#include "redistribution.h"
#include "router.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace megatron_mini {

namespace {

void freeze(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    parameter.requires_grad_(false);
  }
}

}  // namespace

TransformerLayer::TransformerLayer(const Blueprint& blueprint, const std::string& path)
    : path_(path),
      ranks_(blueprint.parallel.own),
      before_forward_(blueprint.before_forward),
      input_layernorm_(register_module(
          "input_layernorm", blueprint.parts->norm(blueprint, path + ".input_layernorm"))),
      self_attention_(register_module(
          "self_attention", blueprint.parts->attention(blueprint, path + ".self_attention"))),
      self_attention_dropout_(
          register_module("self_attention_dropout",
                          blueprint.parts->dropout(blueprint, path + ".self_attention_dropout"))),
      pre_mlp_layernorm_(register_module(
          "pre_mlp_layernorm", blueprint.parts->norm(blueprint, path + ".pre_mlp_layernorm"))),
      mlp_dropout_(register_module("mlp_dropout",
                                   blueprint.parts->dropout(blueprint, path + ".mlp_dropout"))) {
  if (blueprint.model.experts > 1) {
    moe_ = register_module("mlp", blueprint.parts->moe(blueprint, path + ".mlp"));
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
  const at::Tensor mlp = moe_ != nullptr ? moe_->forward(normed, places) : mlp_->forward(normed);
  return scope.out(attended + mlp_dropout_->forward(mlp, places));
}

Decoder::Decoder(const Blueprint& blueprint)
    : recompute_(blueprint.recompute),
      parallel_(blueprint.parallel),
      before_forward_(blueprint.before_forward) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>("Layers"));
  for (int chunk = 0; chunk < parallel_.chunks; ++chunk) {
    const LayerRange range = blueprint.parts->layers_of(blueprint.model.layers, parallel_, chunk);
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
    final_layernorm_ = register_module("final_layernorm",
                                       blueprint.parts->norm(blueprint, "decoder.final_layernorm"));
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
  std::optional<LayerRanks> ranks;  // that hold the stream, where it is divided for some layer
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::optional<LayerRanks>& own = layer(i).ranks();
    if (ranks && (!own || own->tp.size != ranks->tp.size)) {
      stream = join_samples(stream, parallel_, ranks->samples);
      ranks.reset();
    }
    if (own && !ranks) {
      stream = divide_samples(stream, parallel_, own->samples);
      ranks = own;
    }
    stream = layer(i).forward(stream, own ? part_of_samples(places, own->samples) : places);
  }
  return ranks ? join_samples(stream, parallel_, ranks->samples) : stream;
}

GptModel::GptModel(const Blueprint& blueprint)
    : parallel_(blueprint.parallel), before_forward_(blueprint.before_forward) {
  const bool is_last = parallel_.is_last_stage();
  const bool tied = blueprint.model.tied;
  if (parallel_.is_first_stage() || (is_last && tied)) {
    const auto embedding =
        register_module("embedding", std::make_shared<torch::nn::Module>("Embedding"));
    word_embeddings_ =
        embedding->register_module("word_embeddings", blueprint.parts->embedding(blueprint));
  }
  decoder_ = register_module("decoder", blueprint.parts->decoder(blueprint));
  if (is_last) {
    output_layer_ = register_module(
        "output_layer",
        blueprint.parts->output_layer(blueprint, tied ? word_embeddings_->weight() : at::Tensor()));
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

std::optional<LayerRanks> GptModel::ranks_of(const std::string& path) const {
  for (const auto& item : decoder_->named_modules("decoder", /*include_self=*/false)) {
    const auto* const layer = item.value()->as<TransformerLayer>();
    if (layer != nullptr && path.starts_with(item.key() + ".")) {
      return layer->ranks();
    }
  }
  return std::nullopt;
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
      parameter.ranks = ranks_of(parameter.path);
      result.push_back(std::move(parameter));
    }
  }
  return result;
}

}  // namespace megatron_mini
