// The router of a mixture of experts: which experts a token goes to, and with what weight.
//
// Logits, softmax and weights are in f32 (f64 for f64). With sequence parallelism a rank routes its
// rows; without it all tensor-parallel ranks route the same tokens and come to the same result.
//
// Two losses, a load-balancing one and the z loss, belong to a micro-batch and its tokens that
// count. Numbers of tokens are summed over the ranks that share it, so that each rank's loss is an
// addend. Neither is a part of the loss that is trained on: a node hands the router's weights on
// unchanged and starts the losses' own backward when it gets their gradient.
//
// Source: Megatron-LM, moe_utils.py (switch_load_balancing_loss_func, z_loss_func,
// MoEAuxLossAutoScaler) and router.py; expert biases: Wang et al., "Auxiliary-loss-free load
// balancing strategy for mixture-of-experts" (2024).
//
// Thread-safety: none; one training thread.
#pragma once

#include "blueprint.h"
#include "token_places.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace megatron_mini {

// Where this rank's n tokens go.
struct Routing {
  at::Tensor experts;  // [n, k] i64, best first
  at::Tensor weights;  // [n, k] of the experts' outputs
};

// What a router has seen since the step began, this rank's addends.
struct RouterTotals {
  at::Tensor loads;       // [experts] i64: tokens sent to each expert
  double aux_loss = 0.0;  // sums over micro-batches, without coefficients
  double z_loss = 0.0;
};

// This rank's rows of what places say of all tokens of its context-parallel rank: [s, b] -> [rows,
// b].
[[nodiscard]] at::Tensor rows_of_rank(const at::Tensor& per_token, const Parallel& parallel);

class Router : public torch::nn::Module {
 public:
  Router(const Blueprint& blueprint, std::string path);

  // [rows, b, h]
  [[nodiscard]] Routing forward(const at::Tensor& input, const TokenPlaces& places);

  // The bias stays in f32 (f64).
  void to(torch::Dtype type, bool non_blocking = false) override;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const RouterTotals& totals() const { return totals_; }
  void forget_totals();
  // Undefined where the model has none.
  [[nodiscard]] const at::Tensor& expert_bias() const { return expert_bias_; }
  // Moves the biases towards experts with less than the mean of `loads`, [experts] f64.
  virtual void balance(const at::Tensor& loads);

 protected:
  // The router's input [rows, b, h] as its weight multiplies it.
  [[nodiscard]] virtual at::Tensor read(const at::Tensor& input) const { return input; }
  // The weights that follow from the chosen experts' scores [rows, b, k].
  [[nodiscard]] virtual at::Tensor weights_of(const at::Tensor& scores) const;
  // The numbers of the highest of tokens' scores [rows, b, experts], [rows, b, k].
  [[nodiscard]] at::Tensor best_experts(const at::Tensor& scores) const;
  // The experts whose loads the load-balancing loss counts, [n, k]: a token's best by the scores
  // [rows, b, experts] alone. `chosen` [n, k] are its best with the biases.
  [[nodiscard]] virtual at::Tensor counted_experts(const at::Tensor& scores,
                                                   const at::Tensor& chosen) const;
  // The weight of the load-balancing loss.
  [[nodiscard]] virtual double aux_loss_coefficient() const { return model_.aux_loss; }
  // The gradient of both losses, where `tokens` count in the micro-batch.
  [[nodiscard]] virtual double gradient_of_losses(double tokens) const;

  [[nodiscard]] const Parallel& parallel() const { return parallel_; }
  [[nodiscard]] std::int64_t micro_batches() const { return micro_batches_; }

 private:
  // Both this rank's addends, without coefficients.
  struct Losses {
    at::Tensor aux;
    at::Tensor z;
  };
  // Tokens are [n, ...] here; `counted` [n] bool. `tokens` becomes how many count on all ranks that
  // share the micro-batch.
  [[nodiscard]] Losses losses(const at::Tensor& logits,
                              const at::Tensor& sent,
                              const at::Tensor& counted,
                              double& tokens) const;
  [[nodiscard]] at::Tensor attach(const at::Tensor& weights,
                                  const Losses& losses,
                                  double tokens) const;
  ModelConfig model_;
  Parallel parallel_;
  Loss loss_;
  std::int64_t micro_batches_;
  std::string path_;
  at::Tensor weight_;       // [experts, h]
  at::Tensor expert_bias_;  // [experts], takes no gradient
  RouterTotals totals_;
};

}  // namespace megatron_mini
