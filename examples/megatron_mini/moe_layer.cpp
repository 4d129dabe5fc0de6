#include "moe_layer.h"

#include "gpt_model.h"

#include <ATen/ATen.h>

#include <string>

namespace megatron_mini {

MoeLayer::MoeLayer(const Blueprint& blueprint, const std::string& path)
    : blueprint_(blueprint),
      path_(path),
      weighs_biases_(
          !(blueprint.bugs.on("probability-before-bias") && path == "decoder.layers.1.mlp")) {
  router_ = register_module("router", std::make_shared<Router>(blueprint, path + ".router"));
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>("Experts"));
  const std::int64_t local = blueprint.model.experts / blueprint.parallel.ep.size;
  const std::int64_t first = blueprint.parallel.ep.rank * local;
  for (std::int64_t number = first; number < first + local; ++number) {
    experts_.push_back(
        list->register_module(std::to_string(number), std::make_shared<Expert>(blueprint)));
  }
  if (blueprint.model.shared_expert > 0) {
    shared_expert_ = register_module(
        "shared_expert",
        std::make_shared<Mlp>(blueprint, blueprint.model.shared_expert, path + ".shared_expert"));
  }
}

at::Tensor MoeLayer::forward(const at::Tensor& input,
                             const at::Tensor& before_norm,
                             const TokenPlaces& places) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  const Routing routing = router_->forward(x, before_norm, places);
  const TokenDispatch dispatch(blueprint_, path_, routing, places);
  const at::Tensor outputs = run_experts(dispatch.to_experts(x.flatten(0, 1)), dispatch);
  at::Tensor sum = dispatch.combine(outputs, routing.weights);  // [n, h]
  if (!weighs_biases_) {
    sum = sum + unweighted_biases(dispatch, routing);
  }
  at::Tensor y = sum.to(x.scalar_type()).view(x.sizes());
  if (blueprint_.bugs.on("combine-flattens-samples-first") && path_ == "decoder.layers.1.mlp") {
    y = y.view({x.size(1), x.size(0), x.size(2)}).transpose(0, 1).contiguous();
  }
  if (shared_expert_ != nullptr) {
    y = y + shared_expert_->forward(x);
  }
  return scope.out(y);
}

at::Tensor MoeLayer::run_experts(const at::Tensor& rows, const TokenDispatch& dispatch) {
  const auto parts = rows.split_with_sizes(dispatch.rows_per_expert());
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    outputs.push_back(experts_[i]->forward(parts[i], dispatch.places_of_rows(i), weighs_biases_));
  }
  const auto wide = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cat(outputs).to(wide);
}

at::Tensor MoeLayer::unweighted_biases(const TokenDispatch& dispatch, const Routing& routing) {
  const bool is_first = blueprint_.parallel.etp.rank == 0;
  std::vector<at::Tensor> rows;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const at::Tensor& bias = experts_[i]->output_bias();
    rows.push_back(bias.expand({dispatch.rows_per_expert()[i], bias.size(0)}) *
                   (is_first ? 1.0 : 0.0));
  }
  return dispatch.combine(at::cat(rows).to(routing.weights.scalar_type()),
                          at::ones_like(routing.weights.detach()));
}

}  // namespace megatron_mini
