#include "main_gradients.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace megatron_mini {

namespace {

// Small, so that even a tiny model has several; a larger parameter has a bucket of its own.
constexpr std::int64_t kBucketElements = 1 << 16;

// Number of parameters, from the first, that fill one bucket; experts have buckets of their own.
std::size_t bucket_length(std::span<const ModelParameter> parameters) {
  std::size_t length = 0;
  std::int64_t elements = 0;
  while (length < parameters.size()) {
    elements += parameters[length].tensor.numel();
    const bool is_other =
        is_of_expert(parameters[length].role) != is_of_expert(parameters.front().role);
    if (is_other || (length > 0 && elements > kBucketElements)) {
      break;
    }
    ++length;
  }
  return length;
}

}  // namespace

MainGradients::MainGradients(std::vector<ModelParameter> parameters,
                             const Parallel& parallel,
                             const Bugs& bugs)
    : parameters_(std::move(parameters)), parallel_(parallel), bugs_(bugs) {
  std::span<const ModelParameter> rest(parameters_);
  while (!rest.empty()) {
    const auto members = rest.first(bucket_length(rest));
    rest = rest.subspan(members.size());
    std::int64_t elements = 0;
    for (const auto& member : members) {
      elements += member.tensor.numel();
    }
    const auto type =
        members.front().tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    buckets_.push_back({at::zeros({elements}, type), is_of_expert(members.front().role)});
    std::int64_t offset = 0;
    for (const auto& member : members) {
      const auto count = member.tensor.numel();
      views_.push_back(buckets_.back().values.narrow(0, offset, count).view(member.tensor.sizes()));
      offset += count;
    }
  }
}

void MainGradients::zero() {
  for (const auto& bucket : buckets_) {
    bucket.values.zero_();
  }
}

void MainGradients::accumulate(std::int64_t microbatch) {
  const bool dropped = bugs_.on("dropped-microbatch") && microbatch == 1;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    TTRACE_CHECK(gradient.defined(),
                 InternalError,
                 parameters_[i].path,
                 " got no gradient in this micro-batch");
    if (!dropped) {
      views_[i].add_(gradient);
    }
    gradient.reset();
  }
}

void MainGradients::reduce(Loss loss) {
  const Group& of_experts =
      bugs_.on("expert-grads-in-dense-group") ? parallel_.dp_cp : parallel_.edp;
  for (const auto& bucket : buckets_) {
    if (loss == Loss::kMean) {
      bucket.values.div_(divisor(bucket.of_experts));
    }
    sum_in_place(bucket.values, bucket.of_experts ? of_experts : parallel_.dp_cp);
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

void MainGradients::divide(double divisor) {
  for (const auto& bucket : buckets_) {
    bucket.values.div_(divisor);
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

double MainGradients::norm() const {
  const double dense = squared_norm(false);
  return std::sqrt(clips_experts_apart() ? dense : dense + squared_norm(true));
}

double MainGradients::squared_norm(bool of_experts) const {
  const bool is_local = bugs_.on("local-clip-norm");
  const bool counts_shards = !bugs_.on("expert-shards-not-in-norm");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRole role = parameters_[i].role;
    // Ranks hold equal copies of a replicated gradient: the first one counts.
    const bool is_split =
        role == ParameterRole::kSplit || (role == ParameterRole::kExpertSplit && counts_shards);
    const int rank = of_experts ? parallel_.etp.rank : parallel_.tp.rank;
    if (is_of_expert(role) == of_experts && (is_split || rank == 0 || is_local)) {
      squared += views_[i].to(at::kDouble).square().sum();
    }
  }
  const Group& group = of_experts ? parallel_.etp_ep : parallel_.tp;
  return (is_local ? squared : all_reduce(squared, group)).item<double>();
}

bool MainGradients::clips_experts_apart() const {
  return bugs_.on("dense-and-expert-norms-apart");
}

void MainGradients::clip(double norm, double limit) {
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double of_experts = clips_experts_apart() ? std::sqrt(squared_norm(true)) : norm;
  for (const auto& bucket : buckets_) {
    const double length = bucket.of_experts ? of_experts : norm;
    bucket.values.mul_(std::min(1.0, limit / (length + kTiny)));
  }
}

}  // namespace megatron_mini
