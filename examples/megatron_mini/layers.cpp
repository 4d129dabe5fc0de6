#include "layers.h"

#include "faulty_linear.h"
#include "stage_layers.h"

#include <ttrace/error.h>
#include <ttrace/scope.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace megatron_mini {

namespace {

SumOverRanks input_gradient_sum(const Bugs& bugs, const std::string& path, bool is_redundant) {
  if (is_redundant) {
    return bugs.on("gather-backward-sums") ? SumOverRanks::kDone : SumOverRanks::kSkipped;
  }
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

SumOverRanks output_sum(const Bugs& bugs, const std::string& path, bool is_redundant) {
  const bool skipped = is_redundant || (bugs.on("tp-forward-allreduce") &&
                                        path == "decoder.layers.1.mlp.linear_fc2");
  return skipped ? SumOverRanks::kSkipped : SumOverRanks::kDone;
}

// What a row-parallel linear's output is multiplied by.
double output_factor(const Bugs& bugs, const std::string& path) {
  const bool scaled =
      bugs.on("scaled-linear") && path == "decoder.layers.1.self_attention.linear_proj";
  return scaled ? bugs.size(1.05) : 1.0;
}

RowFault row_fault(const Bugs& bugs, const std::string& path) {
  if (bugs.on("saved-input-overwritten") && path.ends_with(".mlp.linear_fc2")) {
    return RowFault::kSharedBuffer;
  }
  if (bugs.on("row-parallel-backward-shard") && path == "decoder.layers.1.mlp.linear_fc2") {
    return RowFault::kGradientOfOwnRows;
  }
  return RowFault::kNone;
}

double norm_epsilon(const Blueprint& blueprint) {
  const auto& bugs = blueprint.bugs;
  return bugs.on("norm-epsilon-not-passed") ? bugs.size(1e-6) : blueprint.model.norm_epsilon;
}

double norm_gradient_divisor(const Blueprint& blueprint) {
  const auto& bugs = blueprint.bugs;
  return bugs.on("norm-resync-divides-grad") ? bugs.size(blueprint.parallel.tp.size) : 1.0;
}

// The same values, whose gradient is divided: they are divided where autograd sees it, and
// multiplied where it does not.
at::Tensor with_gradient_divided(const at::Tensor& tensor, double divisor) {
  if (divisor == 1.0) {
    return tensor;
  }
  at::Tensor result = tensor / divisor;
  result.detach().mul_(divisor);
  return result;
}

// How far a rank's first token is taken to be behind its true one.
std::int64_t start_offset(const Blueprint& blueprint) {
  const auto& bugs = blueprint.bugs;
  const bool is_late = bugs.on("embedding-start-offset") && blueprint.parallel.tp.rank > 0;
  return is_late ? static_cast<std::int64_t>(bugs.size(1.0)) : 0;
}

// Number of rows behind those of a rank that its lookup takes for another rank's.
std::int64_t rows_missed(const Bugs& bugs) {
  return bugs.on("embedding-mask") ? static_cast<std::int64_t>(bugs.size(1.0)) : 0;
}

// The sum of addends and the bias [h]. A mutant that makes an output too large does so with its
// bias; one that leaves a share of an addend out does not.
at::Tensor with_bias(const at::Tensor& sum,
                     const at::Tensor& bias,
                     const ProductMutant& mutant,
                     const Parallel& parallel) {
  if (mutant.output <= 1.0 && mutant.middle_row == 1.0) {
    return sum + bias;
  }
  const auto wide = sum.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor factors = at::full({sum.size(0), sum.size(1), 1}, mutant.output, wide);
  const std::int64_t ranks = parallel.sequence_parallel ? parallel.tp.size : 1;
  const std::int64_t first = parallel.sequence_parallel ? sum.size(0) * parallel.tp.rank : 0;
  const std::int64_t middle = sum.size(0) * ranks / 2 - first;  // among this rank's rows
  if (middle >= 0 && middle < sum.size(0)) {
    factors[middle][0].mul_(mutant.middle_row);
  }
  return (sum.to(wide) + bias.to(wide) * factors).to(sum.scalar_type());
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

Blueprint Blueprint::of_layer(std::int64_t number) const {
  Blueprint result = *this;
  result.parallel.is_redundant =
      !layer_tp.empty() && layer_tp.at(static_cast<std::size_t>(number)) < parallel.tp.size;
  return result;
}

void check_divisible(const ModelConfig& model, const Parallel& parallel) {
  check_stages(model.layers, parallel);
  const int tp = parallel.tp.size;
  const auto check = [tp](const char* name, std::int64_t size) {
    TTRACE_CHECK(size % tp == 0, UsageError, "--tp ", tp, " does not divide ", name, " ", size);
  };
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
  TTRACE_CHECK(model.query_groups % tp == 0 || tp % model.query_groups == 0,
               UsageError,
               "--tp ",
               tp,
               " is neither a divisor nor a multiple of query_groups ",
               model.query_groups);
  check("the rows of linear_qkv,", (model.heads + 2 * model.query_groups) * model.head_size());
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

LayerNorm::LayerNorm(const Blueprint& blueprint, double weight_gradient_factor)
    : epsilon_(norm_epsilon(blueprint)),
      in_halves_(blueprint.bugs.on("tp-replica-drift") && blueprint.parallel.tp.rank > 0),
      gradient_divisor_(norm_gradient_divisor(blueprint)),
      weight_gradient_factor_(weight_gradient_factor) {
  weight_ = register_parameter("weight", at::ones({blueprint.model.hidden}));
  bias_ = register_parameter("bias", at::zeros({blueprint.model.hidden}));
}

at::Tensor LayerNorm::normalise(const at::Tensor& rows) const {
  const auto wide = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const bool is_scaled = weight_gradient_factor_ != 1.0 && weight_.requires_grad();
  // Scaled in a copy, so that the hook is not one more on the weight in every forward.
  const at::Tensor weight = with_gradient_divided(
      weight_.to(wide, /*non_blocking=*/false, /*copy=*/is_scaled), gradient_divisor_);
  if (is_scaled) {
    weight.register_hook(
        [this](const at::Tensor& gradient) { return gradient * weight_gradient_factor_; });
  }
  return at::layer_norm(rows.to(wide),
                        weight_.sizes(),
                        weight,
                        with_gradient_divided(bias_.to(wide), gradient_divisor_),
                        epsilon_);
}

at::Tensor LayerNorm::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  if (in_halves_) {
    const auto halves = x.chunk(2);
    return scope.out(at::cat({normalise(halves[0]), normalise(halves[1])}).to(x.scalar_type()));
  }
  return scope.out(normalise(x).to(x.scalar_type()));
}

ColumnParallelLinear::ColumnParallelLinear(std::int64_t inputs,
                                           std::int64_t outputs,
                                           const Blueprint& blueprint,
                                           const std::string& path)
    : parallel_(blueprint.parallel),
      backward_sum_(input_gradient_sum(blueprint.bugs, path, parallel_.is_redundant)),
      gather_order_(gather_order(blueprint.bugs, path)),
      mixes_gathered_rows_(blueprint.bugs.on("transposed-gather-in-weight-grad") &&
                           path == "decoder.layers.1.self_attention.linear_qkv"),
      fp8_(Fp8Linear::make(blueprint, path, LinearSplit::kOutputs)) {
  const std::int64_t local = outputs / parallel_.parts();
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
  const at::Tensor taken = fp8_->consumed(whole, mine, scope);
  const at::Tensor result = product(taken, mine, fp8_->weight(weight_, scope), {});
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
      fault_(row_fault(blueprint.bugs, path)),
      mutant_(blueprint.mutant.of_linear(path, parallel_.tp)),
      drops_recomputed_sum_(blueprint.bugs.on("recompute-without-collectives")),
      fp8_(Fp8Linear::make(blueprint, path, LinearSplit::kInputs)),
      forward_sum_(output_sum(blueprint.bugs, path, parallel_.is_redundant)),
      bias_before_sum_(blueprint.bugs.on("repeated-bias") &&
                       path == "decoder.layers.1.self_attention.linear_proj"),
      output_factor_(output_factor(blueprint.bugs, path)) {
  const std::int64_t local = inputs / parallel_.parts();
  weight_ = register_parameter("weight", at::zeros({outputs, local}));
  bias_ = register_parameter("bias", at::zeros({outputs}));
}

at::Tensor RowParallelLinear::product(const at::Tensor& input, const at::Tensor& weight) const {
  if (fault_ == RowFault::kSharedBuffer) {
    return linear_with_saved_input(input, kept_in_shared_buffer(input), weight);
  }
  return mutant_.acts() ? mutant_.product(input, weight) : at::linear(input, weight);
}

at::Tensor RowParallelLinear::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  if (fault_ == RowFault::kGradientOfOwnRows) {
    return scope.out(linear_with_gradient_of_own_rows(x, weight_, parallel_.tp) + bias_);
  }
  at::Tensor addend;
  if (fp8_) {
    const at::Tensor quantised = fp8_->input(x, scope);
    const at::Tensor mine = fp8_->consumed(quantised, quantised, scope);
    addend = fp8_->product(product(mine, fp8_->weight(weight_, scope)), *this);
  } else {
    addend = product(x, weight_);
  }
  if (bias_before_sum_) {
    addend = addend + bias_;
  }
  const bool is_alone = drops_recomputed_sum_ && is_recomputing();
  at::Tensor output =
      leave_region(addend, parallel_, is_alone ? SumOverRanks::kSkipped : forward_sum_);
  if (!bias_before_sum_) {
    output = with_bias(output, bias_, mutant_, parallel_);
  }
  if (output_factor_ != 1.0) {
    output = output * output_factor_;
  }
  return scope.out(output);
}

VocabularyEmbedding::VocabularyEmbedding(const Blueprint& blueprint)
    : parallel_(blueprint.parallel),
      keeps_foreign_rows_(blueprint.bugs.on("embedding-output-not-masked")) {
  const auto& model = blueprint.model;
  const std::int64_t rows =
      padded_vocabulary(model.vocabulary, parallel_.tp.size) / parallel_.tp.size;
  first_ = rows * parallel_.tp.rank + start_offset(blueprint);
  end_ = std::min(rows * (parallel_.tp.rank + 1), model.vocabulary) - rows_missed(blueprint.bugs);
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
  const at::Tensor addend = keeps_foreign_rows_
                                ? rows_of_tokens
                                : rows_of_tokens.masked_fill(elsewhere.unsqueeze(-1), 0.0);
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
