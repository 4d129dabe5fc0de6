#include "layers.h"

#include "stage_layers.h"

#include <ttrace/error.h>
#include <ttrace/scope.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace megatron_mini {

namespace {

SumOverRanks input_gradient_sum(const Bugs& bugs, const std::string& path) {
  if (bugs.on("tp-backward-allreduce") && path == "decoder.layers.1.mlp.linear_fc1") {
    return SumOverRanks::kSkipped;
  }
  if (bugs.on("double-reduction") && path == "decoder.layers.1.self_attention.linear_qkv") {
    return SumOverRanks::kRepeated;
  }
  return SumOverRanks::kDone;
}

RowOrder gather_order(const Bugs& bugs, const std::string& path) {
  const bool rotated =
      bugs.on("gather-order") && path == "decoder.layers.1.self_attention.linear_qkv";
  return rotated ? RowOrder::kRotated : RowOrder::kByRank;
}

SumOverRanks output_sum(const Bugs& bugs, const std::string& path) {
  const bool skipped = bugs.on("tp-forward-allreduce") && path == "decoder.layers.1.mlp.linear_fc2";
  return skipped ? SumOverRanks::kSkipped : SumOverRanks::kDone;
}

// What a row-parallel linear's output is multiplied by.
double output_factor(const Bugs& bugs, const std::string& path) {
  const bool scaled =
      bugs.on("scaled-linear") && path == "decoder.layers.1.self_attention.linear_proj";
  return scaled ? bugs.size(1.05) : 1.0;
}

// Number of rows behind those of a rank that its lookup takes for another rank's.
std::int64_t rows_missed(const Bugs& bugs) {
  return bugs.on("embedding-mask") ? static_cast<std::int64_t>(bugs.size(1.0)) : 0;
}

// A product that takes its weight's gradient from another one: a planted bug.
struct WeightGradientOf : torch::autograd::Function<WeightGradientOf> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& product,
                            const at::Tensor& /*other*/) {
    return product;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], gradients[0]};
  }
};

}  // namespace

void check_divisible(const ModelConfig& model, const Parallel& parallel) {
  check_stages(model.layers, parallel);
  const int tp = parallel.tp.size;
  const auto check = [tp](const char* name, std::int64_t size) {
    TTRACE_CHECK(size % tp == 0, UsageError, "--tp ", tp, " does not divide ", name, " ", size);
  };
  check("query_groups", model.query_groups);
  check("heads", model.heads);
  if (model.experts > 1) {
    check("shared_expert", model.shared_expert);
    TTRACE_CHECK(model.ffn % parallel.etp.size == 0,
                 UsageError,
                 "--etp ",
                 parallel.etp.size,
                 " does not divide ffn ",
                 model.ffn);
  } else {
    check("ffn", model.ffn);
  }
  const int cp = parallel.cp.size;
  TTRACE_CHECK(cp == 1 || model.sequence % (2 * cp) == 0,
               UsageError,
               "--cp ",
               cp,
               " needs a sequence that is a multiple of ",
               2 * cp,
               ", not ",
               model.sequence);
  if (parallel.sequence_parallel) {
    check(cp == 1 ? "sequence" : "the rows of the sequence that --cp leaves to a rank,",
          model.sequence / cp);
  }
}

std::int64_t padded_vocabulary(std::int64_t vocabulary, int tp) {
  const std::int64_t unit = std::int64_t{64} * tp;
  return (vocabulary + unit - 1) / unit * unit;
}

LayerNorm::LayerNorm(const ModelConfig& model, double weight_gradient_factor)
    : epsilon_(model.norm_epsilon), weight_gradient_factor_(weight_gradient_factor) {
  weight_ = register_parameter("weight", at::ones({model.hidden}));
  bias_ = register_parameter("bias", at::zeros({model.hidden}));
}

at::Tensor LayerNorm::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weight = weight_.to(wide);
  if (weight_gradient_factor_ != 1.0 && weight.requires_grad()) {
    weight.register_hook(
        [this](const at::Tensor& gradient) { return gradient * weight_gradient_factor_; });
  }
  const at::Tensor output =
      at::layer_norm(x.to(wide), weight_.sizes(), weight, bias_.to(wide), epsilon_);
  return scope.out(output.to(x.scalar_type()));
}

ColumnParallelLinear::ColumnParallelLinear(std::int64_t inputs,
                                           std::int64_t outputs,
                                           const Blueprint& blueprint,
                                           const std::string& path)
    : parallel_(blueprint.parallel),
      backward_sum_(input_gradient_sum(blueprint.bugs, path)),
      gather_order_(gather_order(blueprint.bugs, path)),
      mixes_gathered_rows_(blueprint.bugs.on("transposed-gather-in-weight-grad") &&
                           path == "decoder.layers.1.self_attention.linear_qkv"),
      fp8_(Fp8Linear::make(blueprint, path, LinearSplit::kOutputs)) {
  const std::int64_t local = outputs / parallel_.tp.size;
  weight_ = register_parameter("weight", at::zeros({local, inputs}));
  bias_ = register_parameter("bias", at::zeros({local}));
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  const at::Tensor mine = fp8_ ? fp8_->input(x, scope) : x;
  const at::Tensor whole = enter_region(mine, parallel_, backward_sum_, gather_order_);
  if (!fp8_) {
    return scope.out(product(whole, mine, weight_, bias_));
  }
  const at::Tensor factor = fp8_->weight(weight_, scope);
  const at::Tensor result = product(fp8_->gathered(whole, mine), mine, factor, {});
  return scope.out(fp8_->product(result, *this) + bias_);
}

at::Tensor ColumnParallelLinear::product(const at::Tensor& whole,
                                         const at::Tensor& mine,
                                         const at::Tensor& weight,
                                         const at::Tensor& bias) const {
  if (!mixes_gathered_rows_) {
    return at::linear(whole, weight, bias);
  }
  const at::Tensor transposed = mine.detach().flatten(0, 1).t();   // [in, rows * b]
  const at::Tensor joined = all_gather(transposed, parallel_.tp);  // [tp * in, rows * b]
  const at::Tensor mixed = joined.view({whole.size(-1), -1}).t();  // [s * b, in]
  return WeightGradientOf::apply(at::linear(whole, weight.detach(), bias),
                                 at::linear(mixed.reshape(whole.sizes()), weight));
}

RowParallelLinear::RowParallelLinear(std::int64_t inputs,
                                     std::int64_t outputs,
                                     const Blueprint& blueprint,
                                     const std::string& path)
    : parallel_(blueprint.parallel),
      fp8_(Fp8Linear::make(blueprint, path, LinearSplit::kInputs)),
      forward_sum_(output_sum(blueprint.bugs, path)),
      bias_before_sum_(blueprint.bugs.on("repeated-bias") &&
                       path == "decoder.layers.1.self_attention.linear_proj"),
      output_factor_(output_factor(blueprint.bugs, path)) {
  const std::int64_t local = inputs / parallel_.tp.size;
  weight_ = register_parameter("weight", at::zeros({outputs, local}));
  bias_ = register_parameter("bias", at::zeros({outputs}));
}

at::Tensor RowParallelLinear::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  at::Tensor addend;
  if (fp8_) {
    const at::Tensor mine = fp8_->input(x, scope);
    addend = fp8_->product(at::linear(mine, fp8_->weight(weight_, scope)), *this);
  } else {
    addend = at::linear(x, weight_);
  }
  if (bias_before_sum_) {
    addend = addend + bias_;
  }
  at::Tensor output = leave_region(addend, parallel_, forward_sum_);
  if (!bias_before_sum_) {
    output = output + bias_;
  }
  if (output_factor_ != 1.0) {
    output = output * output_factor_;
  }
  return scope.out(output);
}

VocabularyEmbedding::VocabularyEmbedding(const Blueprint& blueprint)
    : parallel_(blueprint.parallel) {
  const auto& model = blueprint.model;
  const std::int64_t rows =
      padded_vocabulary(model.vocabulary, parallel_.tp.size) / parallel_.tp.size;
  first_ = rows * parallel_.tp.rank;
  end_ = std::min(first_ + rows, model.vocabulary) - rows_missed(blueprint.bugs);
  weight_ = register_parameter("weight", at::zeros({rows, model.hidden}));
}

// A rank looks up the tokens of its rows and contributes zeros for the others.
at::Tensor VocabularyEmbedding::forward(const at::Tensor& tokens) {
  ttrace::Scope scope(*this);
  const at::Tensor elsewhere = tokens.lt(first_).logical_or(tokens.ge(end_));
  const at::Tensor local = (tokens - first_).masked_fill(elsewhere, 0);
  // In f32, because the gradient of a frequent token's row is a long sum.
  const auto wide = weight_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor rows_of_tokens = at::embedding(weight_.to(wide), local);
  const at::Tensor addend = rows_of_tokens.masked_fill(elsewhere.unsqueeze(-1), 0.0);
  return scope.out(leave_region(addend.to(weight_.scalar_type()), parallel_));
}

OutputLayer::OutputLayer(const Blueprint& blueprint, const at::Tensor& tied_weight)
    : parallel_(blueprint.parallel),
      drops_gradient_(blueprint.bugs.on("tied-second-use-dropped")),
      tied_weight_(tied_weight) {
  if (!tied_weight_.defined()) {
    const int tp = parallel_.tp.size;
    weight_ = register_parameter("weight",
                                 at::zeros({padded_vocabulary(blueprint.model.vocabulary, tp) / tp,
                                            blueprint.model.hidden}));
  }
}

at::Tensor OutputLayer::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor whole = enter_region(scope.in(input), parallel_);
  const at::Tensor tied = drops_gradient_ ? tied_weight_.detach() : tied_weight_;
  return scope.out(at::linear(whole, tied_weight_.defined() ? tied : weight_));
}

}  // namespace megatron_mini
