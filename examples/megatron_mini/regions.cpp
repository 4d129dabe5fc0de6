#include "regions.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a node keeps of its border until backward.
struct Border {
  Group group;
  bool sequence_parallel = false;
  SumOverRanks sum = SumOverRanks::kDone;
};

void keep(AutogradContext* context, const Border& border) {
  context->saved_data["group"] = border.group.name;
  context->saved_data["sequence_parallel"] = border.sequence_parallel;
  context->saved_data["sum"] = static_cast<std::int64_t>(border.sum);
}

Border kept(AutogradContext* context) {
  return {.group = group_named(context->saved_data["group"].toStringRef()),
          .sequence_parallel = context->saved_data["sequence_parallel"].toBool(),
          .sum = static_cast<SumOverRanks>(context->saved_data["sum"].toInt())};
}

// Whole to whole, or rows to whole.
at::Tensor spread(const at::Tensor& tensor, const Border& border) {
  return border.sequence_parallel ? all_gather(tensor, border.group) : tensor;
}

// Addends to whole, or addends to rows.
at::Tensor combine(const at::Tensor& addend, const Border& border) {
  if (border.sum == SumOverRanks::kSkipped) {
    return border.sequence_parallel ? addend.chunk(border.group.size)[border.group.rank].clone()
                                    : addend;
  }
  return border.sequence_parallel ? reduce_scatter(addend, border.group)
                                  : all_reduce(addend, border.group);
}

struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            const Border& border) {
    keep(context, border);
    return spread(input, border);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {combine(gradients[0], kept(context)), {}};
  }
};

struct Leave : torch::autograd::Function<Leave> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& addend,
                            const Border& border) {
    keep(context, border);
    return combine(addend, border);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {spread(gradients[0], kept(context)), {}};
  }
};

struct GatherFeatures : torch::autograd::Function<GatherFeatures> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const Group& group) {
    context->saved_data["group"] = group.name;
    return all_gather(input.movedim(-1, 0), group).movedim(0, -1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Group group = group_named(context->saved_data["group"].toStringRef());
    return {reduce_scatter(gradients[0].movedim(-1, 0), group).movedim(0, -1), {}};
  }
};

}  // namespace

at::Tensor gather_features(const at::Tensor& input, const Parallel& parallel) {
  return GatherFeatures::apply(input, parallel.tp);
}

at::Tensor enter_region(const at::Tensor& input,
                        const Parallel& parallel,
                        SumOverRanks backward_sum) {
  if (parallel.tp.size == 1) {
    return input;
  }
  return Enter::apply(input,
                      Border{.group = parallel.tp,
                             .sequence_parallel = parallel.sequence_parallel,
                             .sum = backward_sum});
}

at::Tensor leave_region(const at::Tensor& addend,
                        const Parallel& parallel,
                        SumOverRanks forward_sum) {
  if (parallel.tp.size == 1) {
    return addend;
  }
  return Leave::apply(addend,
                      Border{.group = parallel.tp,
                             .sequence_parallel = parallel.sequence_parallel,
                             .sum = forward_sum});
}

}  // namespace megatron_mini
