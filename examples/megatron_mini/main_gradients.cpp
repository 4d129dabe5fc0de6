#include "main_gradients.h"

#include "faulty_reduction.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace megatron_mini {

namespace {

// Whether sequence parallelism leaves an addend of its gradient on each tp rank.
bool is_addend(const ModelParameter& parameter) {
  return parameter.role == ParameterRole::kReplicatedNorm ||
         parameter.role == ParameterRole::kReplicatedBias ||
         parameter.role == ParameterRole::kReplicatedRouter;
}

std::vector<ModelParameter> trained(std::vector<ModelParameter> parameters) {
  std::erase_if(parameters, [](const auto& item) { return !item.tensor.requires_grad(); });
  return parameters;
}

// A planted bug: the last pipeline stage holds the tied weight where it uses it, behind its layers,
// and not where the first stage has it.
std::vector<ModelParameter> tied_weight_last(std::vector<ModelParameter> parameters) {
  std::stable_partition(
      parameters.begin(), parameters.end(), [](const auto& item) { return !item.is_second_copy; });
  return parameters;
}

std::int64_t frozen_addends(const std::vector<ModelParameter>& parameters) {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) {
    const bool is_frozen = !parameter.tensor.requires_grad();
    elements += is_frozen && is_addend(parameter) ? parameter.tensor.numel() : 0;
  }
  return elements;
}

}  // namespace

MainGradients::MainGradients(std::vector<ModelParameter> parameters,
                             const Parallel& parallel,
                             const Bugs& bugs)
    : frozen_addends_(frozen_addends(parameters)),
      ties_misaligned_(bugs.on("tied-shards-misaligned")),
      parameters_(ties_misaligned_ ? tied_weight_last(trained(std::move(parameters)))
                                   : trained(std::move(parameters))),
      parallel_(parallel),
      bugs_(bugs),
      layout_(flat_buckets(parameters_,
                           parallel.dp_cp,
                           parallel.zero1,
                           !ties_misaligned_,
                           bugs.on("expert-grads-in-dense-group") ? parallel.dp_cp : parallel.edp)),
      parts_(owned_parts(parameters_, layout_, parallel.zero1)),
      views_(parameters_.size()) {
  for (const auto& bucket : layout_) {
    const at::Tensor& first = parameters_[bucket.members.front().parameter].tensor;
    const auto type = first.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    buckets_.push_back(at::zeros({bucket.size}, type));
    for (const auto& [i, offset] : bucket.members) {
      const at::Tensor& parameter = parameters_[i].tensor;
      views_[i] = buckets_.back().narrow(0, offset, parameter.numel()).view(parameter.sizes());
    }
  }
}

void MainGradients::zero(std::int64_t iteration) {
  iteration_ = iteration;
  summed_.reset();
  if (bugs_.on("grads-not-zeroed")) {
    return;
  }
  for (const auto& bucket : buckets_) {
    bucket.zero_();
  }
  if (iteration > 0 && bugs_.on("gathered-parameters-left-in-grads")) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      views_[i].copy_(parameters_[i].tensor.detach());
    }
  }
}

void MainGradients::accumulate(std::int64_t microbatch, int chunk) {
  const bool dropped = bugs_.on("dropped-microbatch") && microbatch == 1;
  const bool repeated = bugs_.on("pipeline-grads-added-twice") && parallel_.pp.size > 1;
  const double factor = (repeated ? bugs_.size(2.0) : 1.0) / summed_.value_or(1.0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].chunk != chunk) {
      continue;
    }
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    TTRACE_CHECK(gradient.defined(),
                 InternalError,
                 parameters_[i].path,
                 " got no gradient in this micro-batch");
    const bool not_accumulated = parameters_[i].path == "decoder.layers.1.mlp.linear_fc1.weight" &&
                                 bugs_.on("weight-grad-not-accumulated");
    if (microbatch > 0 && parallel_.dp.size == 1 && bugs_.on("grads-doubled-per-microbatch")) {
      views_[i].mul_(bugs_.size(2.0));
    }
    if (!dropped && !not_accumulated) {
      views_[i].add_(gradient, factor);
    }
    gradient.reset();
  }
}

double MainGradients::divisor_of_experts(double dense) const {
  if (bugs_.on("expert-grads-not-divided")) {
    return bugs_.size(1.0);
  }
  return bugs_.on("expert-grads-scaled-by-ep")
             ? dense * parallel_.edp.size * parallel_.ep.size / parallel_.dp_cp.size
             : dense;
}

bool MainGradients::is_of_experts(const FlatBucket& bucket) const {
  return is_of_expert(parameters_[bucket.members.front().parameter].role);
}

void MainGradients::reduce(Loss loss) {
  if (!summed_) {
    sum_over_data_ranks(loss);
  }
  if (parallel_.sequence_parallel) {
    sum_sequence_parallel_gradients();
  }
  sum_replicated_expert_gradients();
  sum_tied_gradients();
}

void MainGradients::reduce_early(Loss loss) {
  sum_over_data_ranks(loss);
  summed_ = 1.0;
}

void MainGradients::sum_over_data_ranks(Loss loss) {
  summed_ = gradient_divisor(loss, parallel_, bugs_);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].div_(is_of_experts(layout_[i]) ? divisor_of_experts(*summed_) : *summed_);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> overlooked;  // gradients and what they were
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (is_overlooked(i)) {
      overlooked.emplace_back(views_[i], views_[i].clone());
    }
  }
  sum_buckets();
  for (const auto& [gradient, before] : overlooked) {
    gradient.copy_(all_reduce(before, parallel_.cp));
  }
}

bool MainGradients::is_overlooked(std::size_t i) const {
  return (views_[i].dim() == 1 && bugs_.on("vector-grads-not-reduced")) ||
         (parameters_[i].path == "output_layer.weight" && bugs_.on("head-grad-not-reduced"));
}

void MainGradients::sum_buckets() {
  const BucketSum kind = bucket_sum(parallel_, iteration_, bugs_);
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    const FlatBucket& bucket = layout_[i];
    if (kind != BucketSum::kDone) {
      sum_wrongly(buckets_[i], kind, bucket.group, parallel_);
      continue;
    }
    if (!parallel_.zero1) {
      sum_in_place(buckets_[i], bucket.group);
      continue;
    }
    const std::int64_t begin = bucket.part() * bucket.group.rank;
    const std::int64_t unit = kPartUnit * bucket.group.size;
    const std::int64_t end =
        bugs_.on("bucket-end-not-reduced") ? bucket.used / unit * unit : bucket.size;
    const std::int64_t count = std::clamp<std::int64_t>(end - begin, 0, bucket.part());
    buckets_[i]
        .narrow(0, begin, count)
        .copy_(reduce_scatter(buckets_[i], bucket.group).narrow(0, 0, count));
  }
}

std::vector<at::Tensor> MainGradients::reduced() const {
  std::vector<at::Tensor> result;
  for (const OwnedPart& part : parts_) {
    result.push_back(part.of(views_[part.parameter]));
  }
  return result;
}

void MainGradients::divide(double divisor) {
  for (const auto& bucket : buckets_) {
    bucket.div_(divisor);
  }
}

// Experts' biases that the ranks of etp hold copies of; the first one's gradient is the sum.
void MainGradients::sum_replicated_expert_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].role == ParameterRole::kExpertReplicated) {
      sum_in_place(views_[i], parallel_.etp);
    }
  }
}

void MainGradients::sum_sequence_parallel_gradients() {
  std::vector<at::Tensor> addends;
  std::vector<double> factors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const SumOverTp sum = sum_over_tp(parameters_[i], parallel_.tp.size, bugs_);
    if (is_addend(parameters_[i]) && sum.done) {
      addends.push_back(views_[i].view(-1));
      factors.push_back(sum.factor);
    }
  }
  if (addends.empty()) {
    return;  // a stage of frozen layers alone, on all of its ranks
  }
  std::vector<at::Tensor> summed = addends;
  if (bugs_.on("frozen-norm-grads-shifted")) {
    summed.insert(summed.begin(), at::zeros({frozen_addends_}, addends.front().options()));
  }
  const at::Tensor sums = all_reduce(at::cat(summed), parallel_.tp);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    addends[i].copy_(sums.narrow(0, offset, addends[i].numel()) * factors[i]);
    offset += addends[i].numel();
  }
}

void MainGradients::sum_tied_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].path.starts_with("embedding.")) {
      // The bug: the optimizer has copied what it is going to use.
      const at::Tensor used = bugs_.on("tied-grads-not-summed") ? views_[i].clone() : views_[i];
      sum_in_place(used, parallel_.embedding);
    }
  }
}

double MainGradients::norm() const {
  if (bugs_.on("norm-of-absent-grads")) {
    return 0.0;
  }
  const double dense = squared_norm(false);
  return std::sqrt(clips_experts_apart() ? dense : dense + squared_norm(true));
}

double MainGradients::squared_norm(bool of_experts) const {
  const bool is_local = bugs_.on("local-clip-norm");
  const bool counts_copies = is_local || bugs_.on("norm-counts-copies");
  const bool counts_shards = !bugs_.on("expert-shards-not-in-norm");
  const bool counts_tied_twice = bugs_.on("tied-counted-twice-in-norm");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (const OwnedPart& part : parts_) {
    const ModelParameter& parameter = parameters_[part.parameter];
    // Ranks hold equal copies of a replicated gradient: the first one counts.
    const bool is_split = parameter.role == ParameterRole::kSplit ||
                          (parameter.role == ParameterRole::kExpertSplit && counts_shards);
    const int rank = of_experts ? parallel_.etp.rank : parallel_.tp.rank;
    if (is_of_expert(parameter.role) == of_experts && (is_split || rank == 0 || counts_copies) &&
        (counts_tied_twice || !parameter.is_second_copy)) {
      squared += part.of(views_[part.parameter]).to(at::kDouble).square().sum();
    }
  }
  if (!is_local) {
    squared = all_reduce(squared, of_experts ? parallel_.etp_ep : parallel_.tp);
    if (parallel_.zero1) {
      sum_in_place(squared, of_experts ? parallel_.edp : parallel_.dp_cp);
    }
  }
  if (!bugs_.on("stage-clip-norm")) {
    squared = all_reduce(squared, parallel_.pp);
  }
  return squared.item<double>();
}

bool MainGradients::clips_experts_apart() const {
  return bugs_.on("dense-and-expert-norms-apart");
}

void MainGradients::clip(double norm, double limit) {
  if (bugs_.on("clipping-disabled")) {
    return;
  }
  if (parallel_.tp.rank > 0 && bugs_.on("clipped-on-first-tp-rank-only")) {
    return;
  }
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double of_experts = clips_experts_apart() ? std::sqrt(squared_norm(true)) : norm;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const double length = is_of_experts(layout_[i]) ? of_experts : norm;
    buckets_[i].mul_(std::min(1.0, limit / (length + kTiny)));
  }
}

}  // namespace megatron_mini
