#include "routing_step.h"

#include "router.h"

#include <ATen/ATen.h>

#include <utility>

namespace megatron_mini {

namespace {

std::vector<Router*> routers_of(const GptModel& model) {
  std::vector<Router*> result;
  for (const auto& module : model.modules()) {
    if (auto* const router = module->as<Router>()) {
      result.push_back(router);
    }
  }
  return result;
}

// Over all ranks with other tokens.
at::Tensor sum_over_tokens(const at::Tensor& addend, const Parallel& parallel) {
  const at::Tensor sum = all_reduce(addend, parallel.dp_cp);
  return parallel.sequence_parallel ? all_reduce(sum, parallel.tp) : sum;
}

}  // namespace

RouterLosses finish_routing(const GptModel& model,
                            const ModelConfig& config,
                            std::int64_t micro_batches,
                            const Parallel& parallel) {
  at::Tensor losses = at::zeros({2}, at::kDouble);
  for (Router* const router : routers_of(model)) {
    const RouterTotals& totals = router->totals();
    losses += at::tensor({totals.aux_loss, totals.z_loss}, at::kDouble);
    if (config.expert_bias > 0.0) {
      router->balance(sum_over_tokens(totals.loads, parallel).to(at::kDouble));
    }
    router->forget_totals();
  }
  const at::Tensor means = all_reduce(sum_over_tokens(losses, parallel), parallel.pp) /
                           static_cast<double>(micro_batches);
  return {.aux_loss = means[0].item<double>(), .z_loss = means[1].item<double>()};
}

std::vector<ttrace::OptimizerEntry> expert_biases(const GptModel& model) {
  std::vector<ttrace::OptimizerEntry> result;
  for (const auto& item : model.named_parameters()) {
    if (item.key().ends_with(".expert_bias")) {
      ttrace::OptimizerEntry entry;
      entry.path = item.key();
      entry.param = item.value();
      result.push_back(std::move(entry));
    }
  }
  return result;
}

}  // namespace megatron_mini
