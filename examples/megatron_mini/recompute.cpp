#include "recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

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

variable_list defined(const variable_list& tensors) {
  variable_list result;
  for (const auto& tensor : tensors) {
    if (tensor.defined()) {
      result.push_back(tensor);
    }
  }
  return result;
}

// Undefined tensors stand for inputs that the part does not have.
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& first,
                            const at::Tensor& second,
                            const at::Tensor& third,
                            RecomputedPart part) {
    context->save_for_backward({first, second, third});
    at::Tensor output = part(defined({first, second, third}));
    context->saved_data["part"] =
        c10::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(part)));
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list inputs = context->get_saved_variables();
    for (auto& input : inputs) {
      if (input.defined()) {
        input = input.detach().requires_grad_(input.requires_grad());
      }
    }
    const auto kept = context->saved_data["part"].toCapsule();
    at::Tensor output;
    {
      const Recomputing recomputing;
      const at::AutoGradMode with_gradients(true);
      output = static_cast<Kept&>(*kept).part(defined(inputs));
    }
    torch::autograd::backward({output}, {gradients[0]});
    variable_list result;
    for (const auto& input : inputs) {
      result.push_back(input.defined() ? input.grad() : at::Tensor());
    }
    result.emplace_back();  // of the part
    return result;
  }
};

}  // namespace

at::Tensor recompute(std::vector<at::Tensor> inputs, RecomputedPart part) {
  TORCH_CHECK(!inputs.empty() && inputs.size() <= kMostInputs,
              "a recomputed part has one to three inputs, not ",
              inputs.size());
  inputs.resize(kMostInputs);
  return Recompute::apply(inputs[0], inputs[1], inputs[2], std::move(part));
}

bool is_recomputing() {
  return depth > 0;
}

}  // namespace megatron_mini
