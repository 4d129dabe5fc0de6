#include "moe.h"

#include "precision.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

namespace ttrace::reference {
namespace {

// The lower number comes first where scores are equal.
at::Tensor descending_scores(const at::Tensor& scores) {
  return std::get<0>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
}

at::Tensor loads_of(const at::Tensor& chosen, std::int64_t experts) {
  return at::bincount(chosen.flatten(), {}, experts);  // [E]
}

// Which tokens of the micro-batch the rows of an expert are.
Rows places_of(const at::Tensor& tokens, const at::Tensor& rows) {
  const at::Tensor numbers = tokens.flatten().index_select(0, rows).to(at::kCPU);  // [n]
  const auto* const first = numbers.const_data_ptr<std::int64_t>();
  return {.index = {first, first + numbers.numel()}, .size = tokens.numel()};
}

void add(at::Tensor& sum, const at::Tensor& addend) {
  sum = sum.defined() ? sum + addend : addend;
}

}  // namespace

at::Tensor best_experts(const at::Tensor& scores, std::int64_t top_k) {
  const auto order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return order.narrow(-1, 0, top_k).contiguous();
}

at::Tensor margin_of_choice(const at::Tensor& scores, std::int64_t top_k) {
  const at::Tensor sorted = descending_scores(scores);
  const at::Tensor last = sorted.select(-1, top_k - 1);
  return top_k == scores.size(-1) ? last : last - sorted.select(-1, top_k);
}

at::Tensor balance_loss(const at::Tensor& probabilities, const at::Tensor& chosen) {
  const auto tokens = static_cast<double>(probabilities.size(0));
  const auto experts = probabilities.size(1);
  const auto factor =
      static_cast<double>(experts) / (static_cast<double>(chosen.size(1)) * tokens * tokens);
  return (loads_of(chosen, experts) * probabilities.sum(0)).sum() * factor;
}

at::Tensor z_loss(const at::Tensor& logits) {
  return logits.logsumexp(-1).square().mean();
}

at::Tensor updated_bias(const at::Tensor& bias, const at::Tensor& loads, double rate) {
  const at::Tensor load = loads.to(at::kDouble);
  return bias + rate * (load.mean() - load).sign().to(bias.scalar_type());
}

Router::Router(const ModelConfig& model, const at::TensorOptions& options)
    : weight(register_parameter("weight", at::empty({model.experts, model.hidden}, options))),
      model_(model) {
  if (model.expert_bias > 0.0) {
    expert_bias = register_parameter("expert_bias",
                                     at::zeros({model.experts}, in_high_precision(options)),
                                     /*requires_grad=*/false);
  }
}

Router::Choice Router::forward(const at::Tensor& x, Routing& routing) const {
  Scope scope(*this);
  const at::Tensor input = scope.in(x);
  const auto wide = high_precision(input.scalar_type());
  const at::Tensor logits = scope.out(at::linear(input.to(wide), weight.to(wide)));  // [S, B, E]
  const at::Tensor probabilities = logits.softmax(-1);                               // [S, B, E]

  const at::Tensor plain = probabilities.detach();
  const at::Tensor scores = expert_bias.defined() ? plain + expert_bias : plain;
  const at::Tensor chosen = scope.routing(best_experts(scores, model_.top_k),
                                          margin_of_choice(scores, model_.top_k));  // [S, B, K]
  at::Tensor weights = probabilities.gather(-1, chosen);                            // [S, B, K]
  if (model_.top_k > 1) {
    weights = weights / weights.sum(-1, /*keepdim=*/true);
  }

  routing.loads.push_back(loads_of(chosen, model_.experts));
  const at::Tensor counted = routing.counted.unsqueeze(-1);
  const auto rows = [&](const at::Tensor& tensor) {  // [S, B, n] -> [T, n]
    return tensor.masked_select(counted).view({-1, tensor.size(-1)});
  };
  const at::Tensor sent = expert_bias.defined() ? best_experts(plain, model_.top_k) : chosen;
  add(routing.balance_loss, balance_loss(rows(probabilities), rows(sent)));
  add(routing.z_loss, z_loss(rows(logits)));
  return {chosen, weights};
}

MixtureOfExperts::MixtureOfExperts(const ModelConfig& model, const at::TensorOptions& options)
    : router(register_module("router", std::make_shared<Router>(model, options))) {
  auto list = register_module("experts", std::make_shared<torch::nn::Module>("experts"));
  for (std::int64_t e = 0; e < model.experts; ++e) {
    experts.push_back(
        list->register_module(std::to_string(e), std::make_shared<Mlp>(model, model.ffn, options)));
  }
  if (model.shared_expert > 0) {
    shared_expert = register_module("shared_expert",
                                    std::make_shared<Mlp>(model, model.shared_expert, options));
  }
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& x, Routing& routing) const {
  Scope scope(*this);
  const at::Tensor input = scope.in(x);  // [S, B, H]
  const Router::Choice choice = router->forward(input, routing);
  const auto top_k = choice.experts.size(-1);
  const at::Tensor rows = input.flatten(0, 1);                  // [S B, H]
  const at::Tensor chosen = choice.experts.view({-1, top_k});   // [S B, K]
  const at::Tensor weights = choice.weights.view({-1, top_k});  // [S B, K]

  at::Tensor sum = at::zeros_like(rows, rows.options().dtype(weights.scalar_type()));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const at::Tensor is_here = chosen.eq(static_cast<std::int64_t>(e));                 // [S B, K]
    const at::Tensor here = is_here.any(-1).nonzero().squeeze(-1);                      // [n]
    const at::Tensor weight = weights.masked_fill(is_here.logical_not(), 0.0).sum(-1);  // [S B]
    const at::Tensor output =
        experts[e]->forward(rows.index_select(0, here), places_of(routing.tokens, here));  // [n, H]
    sum = sum.index_add(
        0, here, output.to(sum.scalar_type()) * weight.index_select(0, here).unsqueeze(-1));
  }
  at::Tensor y = sum.to(input.scalar_type()).view_as(input);
  if (shared_expert != nullptr) {
    y = y + shared_expert->forward(input);
  }
  return scope.out(y);
}

}  // namespace ttrace::reference
