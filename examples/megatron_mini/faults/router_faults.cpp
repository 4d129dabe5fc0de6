// Bugs of routers.
#include "../layers.h"
#include "../router.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>

namespace megatron_mini::faults {

namespace {

constexpr char kRouter[] = "decoder.layers.1.mlp.router";
constexpr char kNormBefore[] = "decoder.layers.1.pre_mlp_layernorm";

// Remembers what it was given for whoever shares `input`.
class RemembersInput : public LayerNorm {
 public:
  RemembersInput(std::shared_ptr<at::Tensor> input, const Blueprint& blueprint)
      : LayerNorm(blueprint), input_(std::move(input)) {}
  at::Tensor forward(const at::Tensor& input) override {
    *input_ = input;
    return LayerNorm::forward(input);
  }

 private:
  std::shared_ptr<at::Tensor> input_;
};

// All ranks of tp but the first read what the router's input was normed from.
class ReadsBeforeNorm : public Router {
 public:
  ReadsBeforeNorm(std::shared_ptr<at::Tensor> before_norm,
                  const Blueprint& blueprint,
                  const std::string& path)
      : Router(blueprint, path), before_norm_(std::move(before_norm)) {}

 protected:
  at::Tensor read(const at::Tensor& input) const override {
    return parallel().tp.rank > 0 ? *before_norm_ : input;
  }

 private:
  std::shared_ptr<at::Tensor> before_norm_;
};

void read_before_norm(Parts& parts, const Size& /*size*/) {
  const auto shared = std::make_shared<at::Tensor>();
  replace_at<RemembersInput>(kNormBefore, parts.norm, shared);
  replace_at<ReadsBeforeNorm>(kRouter, parts.router, shared);
}

// The weights of a token's experts do not add up to 1.
class KeepsScoresAsWeights : public Router {
 public:
  using Router::Router;

 protected:
  at::Tensor weights_of(const at::Tensor& scores) const override { return scores; }
};

// The load-balancing loss counts the experts that were chosen with the biases.
class CountsBiasedChoice : public Router {
 public:
  using Router::Router;

 protected:
  at::Tensor counted_experts(const at::Tensor& /*scores*/,
                             const at::Tensor& chosen) const override {
    return chosen;
  }
};

// The load-balancing loss is multiplied by a factor that follows from the run.
using AuxLossFactor = double (*)(const Size& size, const Blueprint& blueprint);

class ScalesAuxLoss : public Router {
 public:
  ScalesAuxLoss(const Size& size,
                AuxLossFactor factor,
                const Blueprint& blueprint,
                const std::string& path)
      : Router(blueprint, path), factor_(factor(size, blueprint)) {}

 protected:
  double aux_loss_coefficient() const override { return Router::aux_loss_coefficient() * factor_; }

 private:
  double factor_;
};

template <AuxLossFactor factor>
void scale_aux_loss(Parts& parts, const Size& size) {
  replace<ScalesAuxLoss>(parts.router, size, factor);
}

double of_local_tokens(const Size& size, const Blueprint& blueprint) {
  return size(1.0 / blueprint.parallel.replica_size());
}

double over_micro_batches(const Size& size, const Blueprint& blueprint) {
  return 1.0 / size(static_cast<double>(blueprint.micro_batches));
}

double without_cp_factor(const Size& size, const Blueprint& blueprint) {
  return size(1.0 / blueprint.parallel.cp.size);
}

double of_global_count(const Size& size, const Blueprint& blueprint) {
  return size(blueprint.parallel.replica_size());
}

double without_gradient(const Size& size, const Blueprint& /*blueprint*/) {
  return size(0.0);
}

// The gradient of both losses is multiplied.
class ScalesGradientOfLosses : public Router {
 public:
  ScalesGradientOfLosses(const Size& size, const Blueprint& blueprint, const std::string& path)
      : Router(blueprint, path), factor_(size(blueprint.parallel.tp.size)) {}

 protected:
  double gradient_of_losses(double tokens) const override {
    return Router::gradient_of_losses(tokens) * factor_;
  }

 private:
  double factor_;
};

// The biases stay as they are.
class NeverBalances : public Router {
 public:
  using Router::Router;
  void balance(const at::Tensor& /*loads*/) override {}
};

void balance_first_layer_only(Parts& parts, const Size& /*size*/) {
  replace_where<NeverBalances>(
      [](const std::string& path) { return path != "decoder.layers.0.mlp.router"; }, parts.router);
}

constexpr Bug kRouterBugs[] = {
    {"ranks-route-differently", read_before_norm},
    {"topk-not-renormalised", only_at<&Parts::router, KeepsScoresAsWeights, kRouter>},
    {"aux-loss-of-biased-choice", everywhere<&Parts::router, CountsBiasedChoice>},
    {"aux-loss-local-tokens", scale_aux_loss<of_local_tokens>},
    {"aux-loss-divided-by-microbatches", scale_aux_loss<over_micro_batches>},
    {"aux-loss-without-cp-factor", scale_aux_loss<without_cp_factor>},
    {"aux-loss-global-count", scale_aux_loss<of_global_count>},
    {"aux-loss-without-gradient", scale_aux_loss<without_gradient>},
    {"aux-loss-times-tp",
     [](Parts& parts, const Size& size) { replace<ScalesGradientOfLosses>(parts.router, size); }},
    {"expert-bias-update-stops", balance_first_layer_only},
};

}  // namespace

std::span<const Bug> router_bugs() {
  return kRouterBugs;
}

}  // namespace megatron_mini::faults
