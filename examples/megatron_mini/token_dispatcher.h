// The way of a micro-batch's tokens to their experts and back.
//
// Each rank sorts copies of its tokens by expert and sends them to the ranks of ep that have these
// experts: an all-to-all with as many rows as were routed, none dropped, none added. Where ranks of
// etp hold different tokens they gather each other's rows, padded to the longest, because each of
// them has a part of the experts; where they hold the same ones nothing is gathered. Rows are then
// sorted by expert. On the way back the ranks of etp add up what their parts of the experts gave:
// row by row before rows are sent home or, where they hold the same tokens, token by token after
// the weighting. Sums and weights are in f32 (f64 for f64).
//
//                  distinct tokens               the same tokens
//   to experts     all-to-all, all-gather        all-to-all
//   and backward   reduce-scatter, all-to-all    all-reduce, all-to-all
//   from experts   reduce-scatter, all-to-all    all-to-all, all-reduce of tokens
//
// Source: Megatron-LM, token_dispatcher.py (MoEAlltoAllTokenDispatcher).
//
// Thread-safety: none; one training thread.
#pragma once

#include "blueprint.h"
#include "regions.h"
#include "router.h"

#include <ttrace/scope.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron_mini {

// n tokens of this rank, k experts a token, m rows of this rank's experts. All ranks of etp and ep
// call it together: first plan(), once, then the others.
class TokenDispatch {
 public:
  explicit TokenDispatch(const Blueprint& blueprint);
  virtual ~TokenDispatch() = default;
  void plan(const Routing& routing, const TokenPlaces& places);

  // [n, h] -> [m, h], sorted by expert.
  [[nodiscard]] at::Tensor to_experts(const at::Tensor& tokens) const;
  // [m, h], addends over etp -> [n, h], each token's weighted sum; weights [n, k].
  [[nodiscard]] at::Tensor combine(const at::Tensor& rows, const at::Tensor& weights) const;

  // How many rows each of this rank's experts has, in their order, and which tokens they are.
  [[nodiscard]] const std::vector<std::int64_t>& rows_per_expert() const { return rows_; }
  [[nodiscard]] virtual ttrace::Rows places_of_rows(std::size_t expert) const;

 protected:
  // The expert of each gathered row, among those of this rank: [m]. `counts` [ranks of etp that
  // rows come from, ep, experts of this rank]: how many rows come from whom.
  [[nodiscard]] virtual at::Tensor experts_of_rows(const at::Tensor& counts) const;
  // The region of the experts, of which the ranks of etp have parts: rows go in, and where these
  // ranks hold the same tokens the weights of their outputs too.
  [[nodiscard]] virtual at::Tensor enter_rows(const at::Tensor& rows) const;
  [[nodiscard]] virtual at::Tensor enter_weights(const at::Tensor& weights) const;
  // Outputs [n k, h] times their weights [n k, 1].
  [[nodiscard]] virtual at::Tensor weigh(const at::Tensor& outputs,
                                         const at::Tensor& weights) const;
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }

 private:
  // What the ranks of etp and ep tell each other.
  struct Table {
    at::Tensor counts;        // [ep, etp, experts of this rank]: rows that a rank sends for each
    at::Tensor microbatches;  // [ep, etp]
  };

  [[nodiscard]] Table exchange_counts(const at::Tensor& counts, std::int64_t microbatch);
  void plan_gather(const Table& table);
  // `tokens`: numbers of this rank's n tokens.
  void exchange_places(const Table& table, const at::Tensor& tokens, std::int64_t microbatch);
  // Rows that came over ep [received, ...] -> those of all ranks of etp.
  [[nodiscard]] at::Tensor gather(const at::Tensor& rows) const;
  // [m, h] -> [n k, h]: to the ranks that the tokens came from, in the order in which they were
  // sent; summed over etp where its ranks hold distinct tokens.
  [[nodiscard]] at::Tensor send_home(const at::Tensor& rows) const;

  Blueprint blueprint_;
  Parallel parallel_;  // with etp in the place of tp
  bool distinct_ = true;
  std::int64_t experts_ = 0;  // on all ranks
  std::int64_t top_k_ = 0;

  at::Tensor copies_;                       // [n k]: copies sorted by expert, as token * k + choice
  std::vector<std::int64_t> sent_;          // rows to each rank of ep
  std::vector<std::int64_t> received_;      // rows from each rank of ep
  std::int64_t longest_ = 0;                // rows that a rank of etp received, at most
  at::Tensor order_;                        // [m]: gathered (and padded) rows, sorted by expert
  std::vector<std::int64_t> rows_;          // of each expert of this rank
  at::Tensor places_;                       // [m, 2]: token and micro-batch of each row
  std::int64_t tokens_ = 0;                 // of a micro-batch
  std::vector<std::int64_t> microbatches_;  // that the ranks of etp and ep are at, ascending
};

}  // namespace megatron_mini
