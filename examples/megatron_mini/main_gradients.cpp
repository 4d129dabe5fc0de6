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
  if (loss == Loss::kMean) {
    divide(bugs_.on("dp-divisor") ? bugs_.size(1.0) : parallel_.dp_cp.size);
  }
  for (const auto& bucket : buckets_) {
    sum_in_place(bucket, parallel_.dp_cp);
  }
  if (parallel_.sequence_parallel) {
    sum_sequence_parallel_gradients();
  }
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

double MainGradients::norm() const {
  const bool is_local = bugs_.on("local-clip-norm");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    // The ranks of tp hold equal copies of a replicated gradient: the first one counts.
    if (parameters_[i].role == ParameterRole::kSplit || parallel_.tp.rank == 0 || is_local) {
      squared += views_[i].to(at::kDouble).square().sum();
    }
  }
  return std::sqrt((is_local ? squared : all_reduce(squared, parallel_.tp)).item<double>());
}

void MainGradients::clip(double norm, double limit) {
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double coefficient = std::min(1.0, limit / (norm + kTiny));
  for (const auto& bucket : buckets_) {
    bucket.mul_(coefficient);
  }
}

}  // namespace megatron_mini
