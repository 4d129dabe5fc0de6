#include "router.h"

#include "wide_type.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Hands a tensor on; in backward the loss, a scalar, gets `scale` as its gradient.
struct AttachLoss : torch::autograd::Function<AttachLoss> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& tensor,
                            const at::Tensor& loss,
                            double scale) {
    context->saved_data["scale"] = scale;
    context->saved_data["type"] = loss.scalar_type();
    return tensor.view_as(tensor);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor of_loss =
        at::full({},
                 context->saved_data["scale"].toDouble(),
                 gradients[0].options().dtype(context->saved_data["type"].toScalarType()));
    return {gradients[0], of_loss, {}};
  }
};

// How far the last chosen one is ahead of the next: [..., experts] -> [...]
at::Tensor margins(const at::Tensor& scores, std::int64_t top_k) {
  const auto sorted = std::get<0>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
  const at::Tensor last = sorted.select(-1, top_k - 1);
  return top_k < sorted.size(-1) ? last - sorted.select(-1, top_k) : last;
}

}  // namespace

at::Tensor rows_of_rank(const at::Tensor& per_token, const Parallel& parallel) {
  return parallel.sequence_parallel
             ? per_token.chunk(parallel.tp.size)[static_cast<std::size_t>(parallel.tp.rank)]
             : per_token;
}

Router::Router(const Blueprint& blueprint, std::string path)
    : model_(blueprint.model),
      parallel_(blueprint.parallel),
      loss_(blueprint.loss),
      micro_batches_(blueprint.micro_batches),
      path_(std::move(path)) {
  weight_ =
      register_parameter("weight", at::zeros({model_.experts, model_.hidden}, parallel_.device));
  if (model_.expert_bias > 0.0) {
    expert_bias_ = register_parameter(
        "expert_bias", at::zeros({model_.experts}, parallel_.device), /*requires_grad=*/false);
  }
  forget_totals();
}

void Router::to(torch::Dtype type, bool non_blocking) {
  Module::to(type, non_blocking);
  if (expert_bias_.defined()) {
    expert_bias_.set_data(expert_bias_.to(wide_type(expert_bias_)));
  }
}

void Router::forget_totals() {
  totals_ = {.loads =
                 at::zeros({model_.experts}, at::TensorOptions(parallel_.device).dtype(at::kLong))};
}

Routing Router::forward(const at::Tensor& input, const TokenPlaces& places) {
  ttrace::Scope scope(*this);
  const at::Tensor x = read(scope.in(input));
  const auto wide = wide_type(x);
  const at::Tensor logits = scope.out(at::linear(x.to(wide), weight_.to(wide)));  // [rows, b, e]
  const at::Tensor scores = logits.softmax(-1);

  const at::Tensor plain = scores.detach();
  const at::Tensor selecting = expert_bias_.defined() ? plain + expert_bias_ : plain;
  const at::Tensor experts =
      scope.routing(best_experts(selecting), margins(selecting, model_.top_k));  // [rows, b, k]
  const at::Tensor weights = weights_of(scores.gather(-1, experts));
  Routing routing{.experts = experts.flatten(0, 1), .weights = weights.flatten(0, 1)};
  if (!at::GradMode::is_enabled()) {
    return routing;  // a forward that is computed again counts then
  }
  totals_.loads += at::bincount(routing.experts.flatten(), {}, model_.experts);
  if (model_.aux_loss > 0.0 || model_.z_loss > 0.0) {
    const at::Tensor sent = counted_experts(plain, routing.experts);
    double tokens = 0.0;
    const Losses addends = losses(
        logits.flatten(0, 1), sent, rows_of_rank(places.counted, parallel_).flatten(), tokens);
    totals_.aux_loss += addends.aux.item<double>();
    totals_.z_loss += addends.z.item<double>();
    routing.weights = attach(routing.weights, addends, tokens);
  }
  return routing;
}

at::Tensor Router::weights_of(const at::Tensor& scores) const {
  return model_.top_k > 1 ? scores / scores.sum(-1, /*keepdim=*/true) : scores;
}

// The lower number comes first where scores are equal.
at::Tensor Router::best_experts(const at::Tensor& scores) const {
  const auto order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return order.narrow(-1, 0, model_.top_k).contiguous();
}

at::Tensor Router::counted_experts(const at::Tensor& scores, const at::Tensor& chosen) const {
  return expert_bias_.defined() ? best_experts(scores).flatten(0, 1) : chosen;
}

void Router::balance(const at::Tensor& loads) {
  expert_bias_ += (loads.mean() - loads).sign().to(expert_bias_.scalar_type()) * model_.expert_bias;
}

Router::Losses Router::losses(const at::Tensor& logits,
                              const at::Tensor& sent,
                              const at::Tensor& counted,
                              double& tokens) const {
  const at::Tensor rows = counted.nonzero().squeeze(-1);
  at::Tensor counts =
      at::cat({at::bincount(sent.index_select(0, rows).flatten(), {}, model_.experts),
               at::full({1}, rows.numel(), rows.options())});
  if (parallel_.sequence_parallel) {
    counts = all_reduce(counts, parallel_.tp);
  }
  counts = all_reduce(counts, parallel_.cp);
  tokens = counts[model_.experts].item<double>();

  const at::Tensor of_tokens = logits.index_select(0, rows);
  const at::Tensor scores = of_tokens.softmax(-1).sum(0);  // [e]
  const double factor =
      static_cast<double>(model_.experts) / (static_cast<double>(model_.top_k) * tokens * tokens);
  return {.aux = (scores * counts.narrow(0, 0, model_.experts)).sum() * factor,
          .z = of_tokens.logsumexp(-1).square().sum() / tokens};
}

// As the micro-batch's own loss: reduce_loss() in trainer.cpp.
double Router::gradient_of_losses(double tokens) const {
  return loss_ == Loss::kPerToken ? tokens
                                  : parallel_.dp_cp.size / static_cast<double>(micro_batches_);
}

at::Tensor Router::attach(const at::Tensor& weights, const Losses& losses, double tokens) const {
  const at::Tensor loss = losses.aux * aux_loss_coefficient() + losses.z * model_.z_loss;
  return AttachLoss::apply(weights, loss, gradient_of_losses(tokens));
}

}  // namespace megatron_mini
