#include "recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>
#include <utility>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::size_t kMostInputs = 3;

thread_local int depth = 0;

class Recomputing {
 public:
  Recomputing() { ++depth; }
  ~Recomputing() { --depth; }
  Recomputing(const Recomputing&) = delete;  // counts once
  Recomputing& operator=(const Recomputing&) = delete;
};

// What a node keeps of the part until backward.
struct Kept : torch::CustomClassHolder {
  explicit Kept(RecomputedPart kept) : part(std::move(kept)) {}
  RecomputedPart part;
};

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& first,
                            const std::optional<at::Tensor>& second,
                            const std::optional<at::Tensor>& third,
                            RecomputedPart part) {
    variable_list inputs = {first};
    for (const auto& other : {second, third}) {
      if (other) {
        inputs.push_back(*other);
      }
    }
    at::Tensor output = part(inputs);
    context->save_for_backward(std::move(inputs));
    context->saved_data["part"] =
        c10::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(part)));
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list inputs = context->get_saved_variables();
    for (auto& input : inputs) {
      input = input.detach().requires_grad_(input.requires_grad());
    }
    const auto kept = context->saved_data["part"].toCapsule();
    at::Tensor output;
    {
      const Recomputing recomputing;
      const at::AutoGradMode with_gradients(true);
      output = static_cast<Kept&>(*kept).part(inputs);
    }
    torch::autograd::backward({output}, {gradients[0]});
    variable_list result;
    for (const auto& input : inputs) {
      result.push_back(input.grad());
    }
    result.resize(kMostInputs + 1);  // absent inputs and the part have none
    return result;
  }
};

}  // namespace

at::Tensor recompute(const std::vector<at::Tensor>& inputs, RecomputedPart part) {
  TORCH_CHECK(!inputs.empty() && inputs.size() <= kMostInputs,
              "a recomputed part has one to three inputs, not ",
              inputs.size());
  const auto other = [&](std::size_t i) {
    return i < inputs.size() ? std::optional<at::Tensor>(inputs[i]) : std::nullopt;
  };
  return Recompute::apply(inputs[0], other(1), other(2), std::move(part));
}

bool is_recomputing() {
  return depth > 0;
}

}  // namespace megatron_mini
