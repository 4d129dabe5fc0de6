// The makers of this program's parts.
//
// A part asks the makers for the parts that it is built from, and the steps of what it does are
// virtual functions. So another maker can put a derived class, with one step replaced, in the place
// of a part, and the part's own source has no word of it. plain_parts.h has the makers of this
// program as it should be.
//
// Thread-safety: values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace megatron_mini {

class ColumnParallelLinear;
class CoreAttention;
class Decoder;
class Expert;
class Fp8Linear;
class Fp8Quantiser;
class LayerNorm;
class MainGradients;
class MixedPrecisionOptimizer;
class MoeLayer;
class OutputLayer;
class ParameterGather;
class ResidualDropout;
class RingSteps;
class Router;
class RowParallelLinear;
class SelfAttention;
class TokenDispatch;
class Trainer;
class VocabularyEmbedding;
enum class LinearSplit : std::uint8_t;
struct Blueprint;
struct FlatBucket;
struct Fp8Config;
struct Fp8Operand;
struct LayerRange;
struct ModelParameter;
struct OptimizerConfig;
struct OwnedPart;
struct Parallel;
struct Plan;
struct WeightDropout;

template <class Part, class... Arguments>
using Maker = std::function<std::shared_ptr<Part>(Arguments...)>;

// Makes a part of the model from the blueprint and the part's path, "decoder.layers.0.mlp".
template <class Part, class... More>
using ModelMaker = Maker<Part, More..., const Blueprint&, const std::string&>;

// Makes a part from the arguments of its maker. A part that has no use for its path, which is the
// last of them, is made without it.
template <class Part, class... Arguments>
std::shared_ptr<Part> make_part(const Arguments&... arguments) {
  if constexpr (std::is_constructible_v<Part, const Arguments&...>) {
    return std::make_shared<Part>(arguments...);
  } else {
    const auto all = std::tie(arguments...);
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::make_shared<Part>(std::get<i>(all)...);
    }
    (std::make_index_sequence<sizeof...(Arguments) - 1>());
  }
}

struct Parts {
  // The model. Linears are made from their numbers of inputs and outputs.
  Maker<VocabularyEmbedding, const Blueprint&> embedding;
  Maker<Decoder, const Blueprint&> decoder;
  Maker<OutputLayer, const Blueprint&, const at::Tensor&> output_layer;
  ModelMaker<LayerNorm> norm;
  ModelMaker<SelfAttention> attention;
  ModelMaker<CoreAttention, const WeightDropout&> core_attention;
  Maker<RingSteps, const std::string&> ring;  // of the core attention with this path
  ModelMaker<ResidualDropout> dropout;
  ModelMaker<ColumnParallelLinear, std::int64_t, std::int64_t> column;
  ModelMaker<RowParallelLinear, std::int64_t, std::int64_t> row;
  ModelMaker<Fp8Linear, LinearSplit> fp8;  // null: the linear with this path stays BF16
  Maker<Fp8Quantiser, const Fp8Config&, const Fp8Operand&> quantiser;
  ModelMaker<MoeLayer> moe;
  ModelMaker<Router> router;
  ModelMaker<Expert> expert;
  ModelMaker<TokenDispatch> dispatch;  // of the mixture of experts with this path
  // Which of the model's layers a chunk of this rank holds.
  std::function<LayerRange(std::int64_t, const Parallel&, int)> layers_of;

  // The training step.
  Maker<Trainer, const Plan&, const Parallel&> trainer;
  Maker<MainGradients, const std::vector<ModelParameter>&, const Parallel&> gradients;
  Maker<MixedPrecisionOptimizer,
        const std::vector<ModelParameter>&,
        const std::vector<OwnedPart>&,
        const std::vector<at::Tensor>&,
        const OptimizerConfig&>
      optimizer;
  Maker<ParameterGather, const std::vector<ModelParameter>&, const std::vector<FlatBucket>&> gather;
};

}  // namespace megatron_mini
