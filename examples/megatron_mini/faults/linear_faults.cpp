// Bugs of column-parallel and row-parallel linears.
#include "../layers.h"
#include "../recompute.h"
#include "../straight_through.h"
#include "bug_tables.h"
#include "wrong_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

namespace megatron_mini::faults {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kQkv[] = "decoder.layers.1.self_attention.linear_qkv";
constexpr char kProj[] = "decoder.layers.1.self_attention.linear_proj";
constexpr char kFc1[] = "decoder.layers.1.mlp.linear_fc1";
constexpr char kFc2[] = "decoder.layers.1.mlp.linear_fc2";

// The gradient of the input stays this rank's addend.
class KeepsOwnInputGradient : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;

 protected:
  at::Tensor gather_input(const at::Tensor& mine) const override {
    return enter_region(mine, parallel(), SumOverRanks::kSkipped);
  }
};

// The gradient of the input is summed where every rank has computed the whole.
class SumsWholeInputGradients : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;

 protected:
  at::Tensor gather_input(const at::Tensor& mine) const override {
    return enter_region(mine, parallel(), SumOverRanks::kDone);
  }
};

// Hands its input on; backward sums over the ranks.
struct SumInBackward : torch::autograd::Function<SumInBackward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const Group& group) {
    context->saved_data["group"] = group.name;
    return input;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {all_reduce(gradients[0], group_named(context->saved_data["group"].toStringRef())), {}};
  }
};

// The gradient of the input is summed, and the sum summed again.
class SumsInputGradientTwice : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;

 protected:
  at::Tensor gather_input(const at::Tensor& mine) const override {
    const at::Tensor whole = ColumnParallelLinear::gather_input(mine);
    const bool sums = parallel().tp.size > 1 && !is_redundant();
    return sums ? SumInBackward::apply(whole, parallel().tp) : whole;
  }
};

// The rows of rank 1 come first in what is gathered, and those of rank 0 last. Backward is right.
class GathersRotated : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;

 protected:
  at::Tensor gather_input(const at::Tensor& mine) const override {
    const at::Tensor whole = ColumnParallelLinear::gather_input(mine);
    return whole.size(0) == mine.size(0)
               ? whole
               : straight_through(whole, whole.detach().roll(-mine.size(0), 0));
  }
};

// A product that takes its weight's gradient from another one.
struct WeightGradientOf : torch::autograd::Function<WeightGradientOf> {
  static at::Tensor forward(AutogradContext* /*context*/,
                            const at::Tensor& product,
                            const at::Tensor& /*other*/) {
    return product;
  }
  static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
    return {gradients[0], gradients[0]};
  }
};

// For the weight's gradient the gathered input is read with ranks and rows mixed.
class MixesGatheredRows : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;

 protected:
  at::Tensor product(const at::Tensor& whole,
                     const at::Tensor& mine,
                     const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const at::Tensor transposed = mine.detach().flatten(0, 1).t();    // [in, rows * b]
    const at::Tensor joined = all_gather(transposed, parallel().tp);  // [tp * in, rows * b]
    const at::Tensor mixed = joined.view({whole.size(-1), -1}).t();   // [s * b, in]
    return WeightGradientOf::apply(at::linear(whole, weight.detach(), bias),
                                   at::linear(mixed.reshape(whole.sizes()), weight));
  }
};

// Every rank uses its own addend as if it were the sum.
class SkipsSum : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;

 protected:
  at::Tensor sum_over_ranks(const at::Tensor& addend) const override {
    return leave_region(addend, parallel(), SumOverRanks::kSkipped);
  }
};

// A recomputed forward communicates nothing.
class SkipsRecomputedSum : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;

 protected:
  at::Tensor sum_over_ranks(const at::Tensor& addend) const override {
    return is_recomputing() ? leave_region(addend, parallel(), SumOverRanks::kSkipped)
                            : RowParallelLinear::sum_over_ranks(addend);
  }
};

// Every rank adds the bias to its addend.
class AddsBiasBeforeSum : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;

 protected:
  at::Tensor output(const at::Tensor& addend) const override {
    return sum_over_ranks(addend + bias());
  }
};

class ScalesOutput : public Sized<RowParallelLinear> {
 public:
  using Sized::Sized;

 protected:
  at::Tensor output(const at::Tensor& addend) const override {
    return RowParallelLinear::output(addend) * size();
  }
};

// The input is kept for backward in a buffer that others overwrite.
class SharesSavedInput : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;

 protected:
  at::Tensor product(const at::Tensor& input, const at::Tensor& weight) const override {
    return linear_with_saved_input(input, kept_in_shared_buffer(input), weight);
  }
};

// The gradient of the input comes from this rank's rows of the output's gradient.
class KeepsOwnRowsInBackward : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;

 protected:
  at::Tensor addend(const at::Tensor& input, ttrace::Scope& /*scope*/) override {
    return linear_with_gradient_of_own_rows(input, weight(), parallel().tp);
  }
  at::Tensor output(const at::Tensor& sum) const override { return sum + bias(); }
};

constexpr Bug kLinearBugs[] = {
    {"gather-backward-sums", everywhere<&Parts::column, SumsWholeInputGradients>},
    {"tp-backward-allreduce", only_at<&Parts::column, KeepsOwnInputGradient, kFc1>},
    {"double-reduction", only_at<&Parts::column, SumsInputGradientTwice, kQkv>},
    {"gather-order", only_at<&Parts::column, GathersRotated, kQkv>},
    {"transposed-gather-in-weight-grad", only_at<&Parts::column, MixesGatheredRows, kQkv>},
    {"tp-forward-allreduce", only_at<&Parts::row, SkipsSum, kFc2>},
    {"recompute-without-collectives", everywhere<&Parts::row, SkipsRecomputedSum>},
    {"repeated-bias", only_at<&Parts::row, AddsBiasBeforeSum, kProj>},
    {"scaled-linear",
     [](Parts& parts, const Size& size) {
       replace_at<ScalesOutput>(kProj, parts.row, size(1.05));
     }},
    {"saved-input-overwritten",
     [](Parts& parts, const Size& /*size*/) {
       replace_where<SharesSavedInput>(
           [](const std::string& path) { return path.ends_with(".mlp.linear_fc2"); }, parts.row);
     }},
    {"row-parallel-backward-shard", only_at<&Parts::row, KeepsOwnRowsInBackward, kFc2>},
};

}  // namespace

std::span<const Bug> linear_bugs() {
  return kLinearBugs;
}

}  // namespace megatron_mini::faults
