// Bugs of what is around the layers: embedding, output layer, dropout, recomputation, stages.
#include "../gpt_model.h"
#include "../stage_layers.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <cstdint>

namespace megatron_mini::faults {

namespace {

// All ranks but the first take their first token to be `size` behind the true one.
class StartsLate : public Sized<VocabularyEmbedding> {
 public:
  using Sized::Sized;

 protected:
  Tokens own_tokens() const override {
    Tokens own = VocabularyEmbedding::own_tokens();
    own.first += parallel().tp.rank > 0 ? static_cast<std::int64_t>(size()) : 0;
    return own;
  }
};

// A rank takes its last `size` tokens for another rank's.
class EndsEarly : public Sized<VocabularyEmbedding> {
 public:
  using Sized::Sized;

 protected:
  Tokens own_tokens() const override {
    Tokens own = VocabularyEmbedding::own_tokens();
    own.end -= static_cast<std::int64_t>(size());
    return own;
  }
};

// What was looked up for other ranks' tokens stays.
class KeepsOthersRows : public VocabularyEmbedding {
 public:
  using VocabularyEmbedding::VocabularyEmbedding;

 protected:
  at::Tensor without_others(const at::Tensor& rows,
                            const at::Tensor& /*elsewhere*/) const override {
    return rows;
  }
};

// A tied weight gets no gradient from its use as the output layer's.
class DetachesTiedWeight : public OutputLayer {
 public:
  using OutputLayer::OutputLayer;

 protected:
  at::Tensor weight() const override {
    return is_tied() ? OutputLayer::weight().detach() : OutputLayer::weight();
  }
};

// A recomputed forward draws another mask.
class DrawsAgain : public ResidualDropout {
 public:
  using ResidualDropout::ResidualDropout;

 protected:
  std::uint64_t draw_of(const TokenPlaces& places) const override {
    return places.draw + (is_recomputing() ? 1 : 0);
  }
};

// Every layer of a recomputed part is fed the part's input.
class FeedsPartsInput : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  at::Tensor run_layers(at::Tensor stream,
                        const TokenPlaces& places,
                        std::int64_t first,
                        std::int64_t count) const override {
    const at::Tensor input = stream;
    for (std::int64_t i = first; i < first + count; ++i) {
      // What is left of the layer before is that its parameters have gradients, of zeros.
      stream = i > first ? layer(i).forward(input, places) + stream * 0.0
                         : layer(i).forward(stream, places);
    }
    return stream;
  }
};

// The number of layers of a chunk of the stages that have no number of their own. Requires: the
// first stage has none.
std::int64_t layers_of_others(std::int64_t layers, Parallel parallel) {
  parallel.pp.rank = 0;
  return layers_of(layers, parallel, 0).count;
}

// With virtual stages and a last stage of its own size, as if the first stage had one too.
LayerRange one_stage_too_early(std::int64_t layers, const Parallel& parallel, int chunk) {
  LayerRange range = layers_of(layers, parallel, chunk);
  const bool acts = parallel.pp.rank > 0 && parallel.chunks > 1 && parallel.last_stage_layers &&
                    !parallel.first_stage_layers;
  range.first -= acts ? layers_of_others(layers, parallel) : 0;
  return range;
}

// A last stage of its own size begins where one would that is like the others.
LayerRange last_as_if_even(std::int64_t layers, const Parallel& parallel, int chunk) {
  LayerRange range = layers_of(layers, parallel, chunk);
  const std::int64_t stage = parallel.pp.rank;
  if (stage > 0 && parallel.is_last_stage() && parallel.last_stage_layers &&
      !parallel.first_stage_layers) {
    const std::int64_t even = layers / parallel.pp.size / parallel.chunks;
    range.first += stage * (even - layers_of_others(layers, parallel));
  }
  return range;
}

constexpr Bug kModelBugs[] = {
    {"embedding-start-offset",
     [](Parts& parts, const Size& size) { replace<StartsLate>(parts.embedding, size(1.0)); }},
    {"embedding-mask",
     [](Parts& parts, const Size& size) { replace<EndsEarly>(parts.embedding, size(1.0)); }},
    {"embedding-output-not-masked", everywhere<&Parts::embedding, KeepsOthersRows>},
    {"tied-second-use-dropped", everywhere<&Parts::output_layer, DetachesTiedWeight>},
    {"recompute-dropout-mask", everywhere<&Parts::dropout, DrawsAgain>},
    {"recompute-chunk-input", everywhere<&Parts::decoder, FeedsPartsInput>},
    {"uneven-virtual-stage-offset",
     [](Parts& parts, const Size& /*size*/) { parts.layers_of = one_stage_too_early; }},
    {"uneven-last-stage-offset",
     [](Parts& parts, const Size& /*size*/) { parts.layers_of = last_as_if_even; }},
};

}  // namespace

std::span<const Bug> model_bugs() {
  return kModelBugs;
}

}  // namespace megatron_mini::faults
