#include "straight_through.h"

#include <torch/csrc/autograd/custom_function.h>

namespace megatron_mini {

namespace {

struct StraightThrough : torch::autograd::Function<StraightThrough> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& /*original*/,
                            const at::Tensor& value) {
    return value;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

}  // namespace

at::Tensor straight_through(const at::Tensor& original, const at::Tensor& value) {
  return StraightThrough::apply(original, value);
}

}  // namespace megatron_mini
