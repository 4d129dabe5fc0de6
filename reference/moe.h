// Mixture of experts: a feed-forward half of which a token uses a few of many copies.
//
//   logits = x W^T                                  a score for every expert
//   p      = softmax(logits)                        over experts
//   chosen = the K largest of p + bias              bias: of the choice, not of the weights
//   w_e    = p_e / sum of the chosen p              K = 1: p_e
//   y      = sum over chosen e of w_e expert_e(x)   (+ shared_expert(x), without a weight)
//
// Two losses are added to the objective, each for one micro-batch and over those of its tokens that
// count in the loss, T of them:
//
//   balance = E / (K T^2) sum_e (tokens sent to e) (sum over tokens of p_e)
//   z       = 1/T sum over tokens of (log sum_e e^logit_e)^2
//
// With a bias, "sent" means what the choice without it would be. After a step
//   bias_e <- bias_e + rate sign(mean load - load_e),  load_e: tokens sent to e in the step.
//
// Logits, probabilities, weights and the sum over experts are in high precision (precision.h).
//
// Sources: Shazeer et al., "Outrageously large neural networks" (2017), section 2; Fedus, Zoph and
// Shazeer, "Switch transformers" (2021), equations 4 to 6, which K generalises; Zoph et al.,
// "ST-MoE" (2022), equation 5; Wang et al., "Auxiliary-loss-free load balancing strategy for
// mixture-of-experts" (2024), algorithm 1.
#pragma once

#include "config.h"
#include "layers.h"
#include "mlp.h"

#include <ttrace/scope.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace ttrace::reference {

// What routers have to know of a micro-batch, and what they report in addition to their choice. A
// dense model leaves it alone.
struct Routing {
  at::Tensor tokens;   // [S, B] i64: number of each token, s B + b before samples were permuted
  at::Tensor counted;  // [S, B] bool: which of them count in the loss

  at::Tensor balance_loss{};        // scalar, sum over layers, without its weight
  at::Tensor z_loss{};              // likewise
  std::vector<at::Tensor> loads{};  // by layer, [E] i64: tokens sent to each expert
};

// scores [..., E] -> [..., K] i64, best first; of equal ones the lower number first.
[[nodiscard]] at::Tensor best_experts(const at::Tensor& scores, std::int64_t top_k);

// How much the last of the K best is ahead of the best that is left out: [..., E] -> [...].
[[nodiscard]] at::Tensor margin_of_choice(const at::Tensor& scores, std::int64_t top_k);

// probabilities [T, E], chosen [T, K] -> scalar.
[[nodiscard]] at::Tensor balance_loss(const at::Tensor& probabilities, const at::Tensor& chosen);

// logits [T, E] -> scalar.
[[nodiscard]] at::Tensor z_loss(const at::Tensor& logits);

// bias [E], loads [E] -> [E].
[[nodiscard]] at::Tensor updated_bias(const at::Tensor& bias, const at::Tensor& loads, double rate);

class Router : public torch::nn::Module {
 public:
  struct Choice {
    at::Tensor experts;  // [S, B, K] i64, best first
    at::Tensor weights;  // [S, B, K] of their outputs
  };

  Router(const ModelConfig& model, const at::TensorOptions& options);
  // x [S, B, H]
  Choice forward(const at::Tensor& x, Routing& routing) const;

  at::Tensor weight;       // [E, H]
  at::Tensor expert_bias;  // [E], high precision, not trained; undefined where the model has none

 private:
  ModelConfig model_;
};

class MixtureOfExperts : public torch::nn::Module {
 public:
  MixtureOfExperts(const ModelConfig& model, const at::TensorOptions& options);
  // [S, B, H] -> same
  at::Tensor forward(const at::Tensor& x, Routing& routing) const;

  std::shared_ptr<Router> router;
  std::vector<std::shared_ptr<Mlp>> experts;
  std::shared_ptr<Mlp> shared_expert;  // null where there is none
};

}  // namespace ttrace::reference
