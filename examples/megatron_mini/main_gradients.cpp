#include "main_gradients.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace megatron_mini {

MainGradients::MainGradients(std::vector<ModelParameter> parameters,
                             const Parallel& parallel,
                             const Bugs& bugs)
    : parameters_(std::move(parameters)),
      parallel_(parallel),
      bugs_(bugs),
      layout_(flat_buckets(parameters_,
                           parallel.dp_cp,
                           parallel.zero1,
                           !bugs.on("tied-shards-misaligned"),
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
    if (!dropped && !not_accumulated) {
      views_[i].add_(gradient, factor);
    }
    gradient.reset();
  }
}

void MainGradients::sum_over_data_ranks(Loss loss) {
  summed_ = 1.0;
  if (loss == Loss::kMean) {
    summed_ = divisor(false);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      buckets_[i].div_(divisor(is_of_experts(layout_[i])));
    }
  }
  sum_buckets();
}

double MainGradients::divisor(bool of_experts) const {
  if (!of_experts) {
    return bugs_.on("dp-divisor") ? bugs_.size(1.0) : parallel_.dp_cp.size;
  }
  if (bugs_.on("expert-grads-not-divided")) {
    return bugs_.size(1.0);
  }
  return bugs_.on("expert-grads-scaled-by-ep") ? parallel_.edp.size * parallel_.ep.size
                                               : parallel_.dp_cp.size;
}

bool MainGradients::is_of_experts(const FlatBucket& bucket) const {
  return is_of_expert(parameters_[bucket.members.front().parameter].role);
}

void MainGradients::reduce(Loss loss) {
  if (!summed_) {
    sum_over_data_ranks(loss);
  }
  if (parallel_.sequence_parallel) {
    sum_over(parallel_.tp, [&](ParameterRole role) {
      return role == ParameterRole::kReplicatedBias ||
             (role == ParameterRole::kReplicatedNorm && !bugs_.on("sp-norm-grad")) ||
             (role == ParameterRole::kReplicatedRouter && !bugs_.on("sp-router-grad"));
    });
  }
  sum_over(parallel_.etp,
           [](ParameterRole role) { return role == ParameterRole::kExpertReplicated; });
  sum_tied_gradients();
}

void MainGradients::sum_buckets() {
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    const FlatBucket& bucket = layout_[i];
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

void MainGradients::sum_over(const Group& group,
                             const std::function<bool(ParameterRole)>& concerns) {
  std::vector<at::Tensor> addends;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (concerns(parameters_[i].role)) {
      addends.push_back(views_[i].view(-1));
    }
  }
  if (addends.empty()) {
    return;  // on all ranks of the group
  }
  const at::Tensor sums = all_reduce(at::cat(addends), group);
  std::int64_t offset = 0;
  for (auto& addend : addends) {
    addend.copy_(sums.narrow(0, offset, addend.numel()));
    offset += addend.numel();
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
  const bool counts_shards = !bugs_.on("expert-shards-not-in-norm");
  const bool counts_copies = bugs_.on("tied-counted-twice-in-norm");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (const OwnedPart& part : parts_) {
    const ModelParameter& parameter = parameters_[part.parameter];
    // Ranks hold equal copies of a replicated gradient: the first one counts.
    const bool is_split = parameter.role == ParameterRole::kSplit ||
                          (parameter.role == ParameterRole::kExpertSplit && counts_shards);
    const int rank = of_experts ? parallel_.etp.rank : parallel_.tp.rank;
    if (is_of_expert(parameter.role) == of_experts && (is_split || rank == 0 || is_local) &&
        (counts_copies || !parameter.is_second_copy)) {
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
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double of_experts = clips_experts_apart() ? std::sqrt(squared_norm(true)) : norm;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const double length = is_of_experts(layout_[i]) ? of_experts : norm;
    buckets_[i].mul_(std::min(1.0, limit / (length + kTiny)));
  }
}

}  // namespace megatron_mini
