// Causal attention over a sequence whose tokens are spread over context-parallel ranks in zig-zag
// order (context_parallel.h). No rank ever holds the whole sequence.
//
// Forward: queries stay, keys and values go once round the ring. What a rank's queries get from one
// rank's keys, o_i with the logarithm l_i of its softmax's denominator, is merged with what they
// have:
//   l = log(e^l1 + e^l2),  o = o1 e^(l1 - l) + o2 e^(l2 - l)
// Backward: keys and values go round again, each with its gradient, which takes one step more and
// is then back at its owner. With the final l, scores S and the incoming gradient dO:
//   P = e^(S - l),  dV = P^T dO,  dS = P (dO V^T - rowsum(dO o)),  dQ = dS K,  dK = dS^T Q
// Dropout zeroes elements of P and divides the others by 1 - p: in the products with V and dO it
// stands on P, in dS on dO V^T; denominators are those of all weights.
//
// Scores, denominators, sums and travelling gradients are in f32 (f64 for f64); P and dS are
// rounded to the tensors' type before they are multiplied, as in the fused kernels.
//
// Sources: Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers" (2023); Dao et
// al., "FlashAttention" (2022), section 3.1 and algorithm 4.
//
// Thread-safety: none; one training thread. All ranks of the group call together.
#pragma once

#include "collectives.h"

#include <ATen/core/Tensor.h>

#include <memory>

namespace megatron_mini {

// The steps of the ring. Tensors are [b, g, m, s, d]: query head j of a group is at m = j, keys and
// values have one entry there. A block is where this rank's queries and one rank's keys meet; `own`
// says that these are this rank's keys too.
class RingSteps {
 public:
  virtual ~RingSteps() = default;

  // Whether the queries of a block see keys up to their own row only.
  [[nodiscard]] virtual bool is_masked(bool own) const { return own; }
  // What a rank takes for the keys and values [2, b, g, 1, s, d] that have come to it.
  [[nodiscard]] virtual at::Tensor received(const at::Tensor& key_value, bool own) const;

  // How what queries have is merged with what they get from one more block.
  struct Merge {
    at::Tensor log_denominator;  // of both
    at::Tensor weight_of_total;
    at::Tensor weight_of_part;
  };
  // Logarithms of denominators, [b, g, m, queries, 1].
  [[nodiscard]] virtual Merge merge(const at::Tensor& total, const at::Tensor& part) const;

  // Backward: the logarithm of the denominator that belongs to a block's scores [.., queries,
  // keys].
  [[nodiscard]] virtual at::Tensor log_denominator(const at::Tensor& scores,
                                                   const at::Tensor& merged) const;
  // Backward: the rank whose part of the dropout mask belongs to the keys of rank `source`.
  [[nodiscard]] virtual int mask_of(int source, int ranks) const;
  // Backward: the gradients of keys and values, one step before their owner -> those of this rank.
  [[nodiscard]] virtual at::Tensor bring_home(const at::Tensor& gradient, const Group& group) const;
};

struct Ring {
  Group group;
  double scale = 1.0;    // of the scores
  at::Tensor documents;  // [whole sequence, b] i64, as in TokenPlaces
  at::Tensor kept{};  // [b, n, s, whole sequence] bool: weights that dropout keeps; undefined: all
  double dropped = 0.0;  // probability of being dropped
  std::shared_ptr<const RingSteps> steps = std::make_shared<RingSteps>();
};

// query [s, b, n, d], key and value [s, b, g, d] with n a multiple of g -> [s, b, n * d]
[[nodiscard]] at::Tensor ring_attention(const at::Tensor& query,
                                        const at::Tensor& key,
                                        const at::Tensor& value,
                                        const Ring& ring);

}  // namespace megatron_mini
