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

// Number of parameters, from the first, that fill one bucket.
std::size_t bucket_length(std::span<const ModelParameter> parameters) {
  std::size_t length = 0;
  std::int64_t elements = 0;
  while (length < parameters.size()) {
    elements += parameters[length].tensor.numel();
    if (length > 0 && elements > kBucketElements) {
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
    buckets_.push_back(at::zeros({elements}, type));
    std::int64_t offset = 0;
    for (const auto& member : members) {
      const auto count = member.tensor.numel();
      views_.push_back(buckets_.back().narrow(0, offset, count).view(member.tensor.sizes()));
      offset += count;
    }
  }
}

void MainGradients::zero() {
  for (const auto& bucket : buckets_) {
    bucket.zero_();
  }
  summed_.reset();
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
    if (!dropped) {
      views_[i].add_(gradient, factor);
    }
    gradient.reset();
  }
}

void MainGradients::sum_over_data_ranks(Loss loss) {
  summed_ = 1.0;
  if (loss == Loss::kMean) {
    summed_ = bugs_.on("dp-divisor") ? bugs_.size(1.0) : parallel_.dp_cp.size;
    divide(*summed_);
  }
  for (const auto& bucket : buckets_) {
    sum_in_place(bucket, parallel_.dp_cp);
  }
}

void MainGradients::reduce(Loss loss) {
  if (!summed_) {
    sum_over_data_ranks(loss);
  }
  if (parallel_.sequence_parallel) {
    sum_sequence_parallel_gradients();
  }
  sum_tied_gradients();
}

void MainGradients::divide(double divisor) {
  for (const auto& bucket : buckets_) {
    bucket.div_(divisor);
  }
}

void MainGradients::sum_sequence_parallel_gradients() {
  std::vector<at::Tensor> addends;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool skipped =
        parameters_[i].role == ParameterRole::kReplicatedNorm && bugs_.on("sp-norm-grad");
    if (parameters_[i].role != ParameterRole::kSplit && !skipped) {
      addends.push_back(views_[i].view(-1));
    }
  }
  const at::Tensor sums = all_reduce(at::cat(addends), parallel_.tp);
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
  const bool is_local = bugs_.on("local-clip-norm");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_second_copy && !bugs_.on("tied-counted-twice-in-norm")) {
      continue;
    }
    // The ranks of tp hold equal copies of a replicated gradient: the first one counts.
    if (parameters_[i].role == ParameterRole::kSplit || parallel_.tp.rank == 0 || is_local) {
      squared += views_[i].to(at::kDouble).square().sum();
    }
  }
  if (!is_local) {
    squared = all_reduce(squared, parallel_.tp);
  }
  if (!bugs_.on("stage-clip-norm")) {
    squared = all_reduce(squared, parallel_.pp);
  }
  return std::sqrt(squared.item<double>());
}

void MainGradients::clip(double norm, double limit) {
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double coefficient = std::min(1.0, limit / (norm + kTiny));
  for (const auto& bucket : buckets_) {
    bucket.mul_(coefficient);
  }
}

}  // namespace megatron_mini
