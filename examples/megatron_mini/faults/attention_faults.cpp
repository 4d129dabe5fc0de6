// Bugs of self-attention, but for those of the ring.
#include "attention_faults.h"

#include "bug_tables.h"
#include "wrong_positions.h"

#include <ATen/ATen.h>

#include <cstdint>

namespace megatron_mini::faults {

namespace {

constexpr char kCore[] = "decoder.layers.1.self_attention.core_attention";

// Rotary embedding turns elements 2i and 2i + 1 of a head, and not i and i + d/2.
class TurnsNeighbours : public SelfAttention {
 public:
  using SelfAttention::SelfAttention;

 protected:
  at::Tensor turn(const at::Tensor& heads, const at::Tensor& positions) const override {
    const std::int64_t half = heads.size(-1) / 2;
    const at::Tensor apart = heads.unflatten(-1, {half, 2}).transpose(-1, -2).flatten(-2);
    return SelfAttention::turn(apart, positions)
        .unflatten(-1, {2, half})
        .transpose(-1, -2)
        .flatten(-2);
  }
};

// The scaled query is written over the query, unseen by autograd.
class ScalesQueryInPlace : public CoreAttention {
 public:
  using CoreAttention::CoreAttention;

 protected:
  double scale_of_scores(const at::Tensor& query) const override {
    query.variable_data().mul_(CoreAttention::scale_of_scores(query));
    return 1.0;
  }
};

template <Positions wrong>
class TurnsByOtherPositions : public SelfAttention {
 public:
  using SelfAttention::SelfAttention;

 protected:
  at::Tensor positions(const TokenPlaces& places) const override {
    const at::Tensor taken = wrong(places, parallel().cp);
    return taken.dim() == 1 ? taken.unsqueeze(1).expand_as(places.positions) : taken;
  }
};

constexpr Bug kAttentionBugs[] = {
    {"rotary-interleaved", everywhere<&Parts::attention, TurnsNeighbours>},
    // (0.1 ln 40 + 1)^2: the factor of a context that YaRN made 40 times as long.
    {"softmax-scale",
     [](Parts& parts, const Size& size) {
       replace_at<ScalesScores>(kCore, parts.core_attention, size(1.87));
     }},
    {"recompute-repeats-in-place", only_at<&Parts::core_attention, ScalesQueryInPlace, kCore>},
    {"positions-restart-on-ranks",
     everywhere<&Parts::attention, TurnsByOtherPositions<positions_from_zero>>},
    {"zigzag-positions-contiguous",
     everywhere<&Parts::attention, TurnsByOtherPositions<positions_of_contiguous_parts>>},
    {"packed-positions-not-restarted",
     everywhere<&Parts::attention, TurnsByOtherPositions<positions_within_samples>>},
    {"packed-positions-without-cp",
     everywhere<&Parts::attention, TurnsByOtherPositions<positions_of_first_tokens>>},
    {"packed-lengths-of-padded-documents",
     everywhere<&Parts::attention, TurnsByOtherPositions<positions_of_padded_documents>>},
};

}  // namespace

std::span<const Bug> attention_bugs() {
  return kAttentionBugs;
}

}  // namespace megatron_mini::faults
