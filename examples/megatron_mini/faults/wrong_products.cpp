#include "wrong_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace megatron_mini::faults {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// gradient [s, b, o], input [s * b, i] -> [o, i]
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input) {
  return at::matmul(gradient.flatten(0, 1).t(), input);
}

struct LinearWithSavedInput : torch::autograd::Function<LinearWithSavedInput> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& saved,
                            const at::Tensor& weight) {
    context->save_for_backward({weight});
    context->saved_data["input"] = saved;  // autograd would see that it is overwritten
    return at::linear(input, weight);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor weight = context->get_saved_variables()[0];
    return {at::matmul(gradients[0], weight),
            {},
            weight_gradient(gradients[0], context->saved_data["input"].toTensor())};
  }
};

struct LinearWithGradientOfOwnRows : torch::autograd::Function<LinearWithGradientOfOwnRows> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            const Group& group) {
    context->save_for_backward({input, weight});
    context->saved_data["group"] = group.name;
    return reduce_scatter(at::linear(input, weight), group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Group group = group_named(context->saved_data["group"].toStringRef());
    return {all_gather(at::matmul(gradients[0], saved[1]), group),
            weight_gradient(all_gather(gradients[0], group), saved[0].flatten(0, 1)),
            {}};
  }
};

}  // namespace

at::Tensor linear_with_saved_input(const at::Tensor& input,
                                   const at::Tensor& saved,
                                   const at::Tensor& weight) {
  return LinearWithSavedInput::apply(input, saved, weight);
}

at::Tensor kept_in_shared_buffer(const at::Tensor& input) {
  static at::Tensor buffer;
  const at::Tensor rows = input.detach().flatten(0, 1);
  if (!buffer.defined() || buffer.sizes() != rows.sizes()) {
    buffer = at::empty_like(rows);
  }
  return buffer.copy_(rows);
}

at::Tensor linear_with_gradient_of_own_rows(const at::Tensor& input,
                                            const at::Tensor& weight,
                                            const Group& group) {
  return LinearWithGradientOfOwnRows::apply(input, weight, group);
}

}  // namespace megatron_mini::faults
