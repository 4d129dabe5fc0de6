#include "cross_entropy.h"

#include "wide_type.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

namespace megatron_mini {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// d loss / d x_j = softmax_j - (1 - c) [j is the label] - c / K, without smoothing c = 0; no
// communication, as the softmax is complete.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& logits,
                            const at::Tensor& labels,
                            const VocabularyPart& part,
                            const Group& group,
                            DenominatorSum denominators) {
    const auto columns = logits.size(-1);
    const auto wide = wide_type(logits);
    const at::Tensor index = at::arange(part.first, part.first + columns, labels.options());
    at::Tensor x = logits.to(wide).masked_fill(index >= part.logical,
                                               -std::numeric_limits<double>::infinity());
    x = x - all_reduce(x.amax(-1), group, Reduction::kMax).unsqueeze(-1);

    const at::Tensor elsewhere = labels.lt(part.first).logical_or(labels.ge(part.first + columns));
    const at::Tensor column = (labels - part.first).masked_fill(elsewhere, 0).unsqueeze(-1);
    const at::Tensor target =
        all_reduce(x.gather(-1, column).squeeze(-1).masked_fill(elsewhere, 0.0), group);

    const at::Tensor exponentials = x.exp();
    const at::Tensor sum = denominators(exponentials.sum(-1), group);
    context->save_for_backward({exponentials / sum.unsqueeze(-1), column, elsewhere});
    context->saved_data["type"] = logits.scalar_type();
    context->saved_data["share"] = 0.0;
    const at::Tensor loss = sum.log() - target;
    if (part.smoothing == 0.0) {
      return loss;
    }
    const auto count = static_cast<double>(part.logical);
    const double share = part.smoothing * count / (count - 1.0);
    const at::Tensor all = all_reduce(x.masked_fill(index >= part.logical, 0.0).sum(-1), group);
    context->saved_data["share"] = share;
    context->saved_data["uniform"] = index.lt(part.logical).to(wide) / count;  // [columns]
    return loss * (1.0 - share) - (all / count - sum.log()) * share;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& softmax = saved[0];
    const at::Tensor one_here = saved[2].logical_not().to(softmax.scalar_type()).unsqueeze(-1);
    const double share = context->saved_data["share"].toDouble();
    at::Tensor slope = softmax.scatter_add(-1, saved[1], one_here * (share - 1.0));
    if (share > 0.0) {
      slope = slope - context->saved_data["uniform"].toTensor() * share;
    }
    const auto type = context->saved_data["type"].toScalarType();
    return {(slope * gradients[0].unsqueeze(-1)).to(type), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor sum_of_denominators(const at::Tensor& addends, const Group& group) {
  return all_reduce(addends, group);
}

at::Tensor cross_entropy(const at::Tensor& logits,
                         const at::Tensor& labels,
                         const VocabularyPart& part,
                         const Group& group,
                         DenominatorSum denominators) {
  return CrossEntropy::apply(logits, labels, part, group, denominators);
}

}  // namespace megatron_mini
