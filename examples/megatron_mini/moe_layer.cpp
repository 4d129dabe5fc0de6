#include "moe_layer.h"

#include "wide_type.h"

#include <ATen/ATen.h>

#include <string>

namespace megatron_mini {

MoeLayer::MoeLayer(const Blueprint& blueprint, const std::string& path)
    : blueprint_(blueprint), path_(path) {
  const Parts& parts = *blueprint.parts;
  router_ = register_module("router", parts.router(blueprint, path + ".router"));
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>("Experts"));
  const std::int64_t local = blueprint.model.experts / blueprint.parallel.ep.size;
  const std::int64_t first = blueprint.parallel.ep.rank * local;
  for (std::int64_t i = first; i < first + local; ++i) {
    const std::string number = std::to_string(i);
    experts_.push_back(
        list->register_module(number, parts.expert(blueprint, path + ".experts." + number)));
  }
  if (blueprint.model.shared_expert > 0) {
    shared_expert_ = register_module(
        "shared_expert",
        std::make_shared<Mlp>(blueprint, blueprint.model.shared_expert, path + ".shared_expert"));
  }
}

at::Tensor MoeLayer::forward(const at::Tensor& input, const TokenPlaces& places) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  const Routing routing = router_->forward(x, places);
  const auto dispatch = blueprint_.parts->dispatch(blueprint_, path_);
  dispatch->plan(routing, places);
  const at::Tensor outputs = run_experts(dispatch->to_experts(x.flatten(0, 1)), *dispatch);
  at::Tensor y = in_place(combine(outputs, *dispatch, routing), x);
  if (shared_expert_ != nullptr) {
    y = y + shared_expert_->forward(x);
  }
  return scope.out(y);
}

at::Tensor MoeLayer::run_experts(const at::Tensor& rows, const TokenDispatch& dispatch) {
  const auto parts = rows.split_with_sizes(dispatch.rows_per_expert());
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    outputs.push_back(experts_[i]->forward(parts[i], dispatch.places_of_rows(i)));
  }
  const auto wide = wide_type(rows);
  return at::cat(outputs).to(wide);
}

at::Tensor MoeLayer::combine(const at::Tensor& outputs,
                             const TokenDispatch& dispatch,
                             const Routing& routing) const {
  return dispatch.combine(outputs, routing.weights);
}

at::Tensor MoeLayer::in_place(const at::Tensor& tokens, const at::Tensor& input) const {
  return tokens.to(input.scalar_type()).view(input.sizes());
}

}  // namespace megatron_mini
