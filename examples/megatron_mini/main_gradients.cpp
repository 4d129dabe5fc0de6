#include "main_gradients.h"

#include "faulty_reduction.h"

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

void MainGradients::zero(std::int64_t iteration) {
  iteration_ = iteration;
  is_reduced_ = false;
  if (bugs_.on("grads-not-zeroed")) {
    return;
  }
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
    const bool not_accumulated = parameters_[i].path == "decoder.layers.1.mlp.linear_fc1.weight" &&
                                 bugs_.on("weight-grad-not-accumulated");
    if (microbatch > 0 && parallel_.dp.size == 1 && bugs_.on("grads-doubled-per-microbatch")) {
      views_[i].mul_(bugs_.size(2.0));
    }
    if (!dropped && !not_accumulated) {
      views_[i].add_(gradient);
    }
    gradient.reset();
  }
}

void MainGradients::reduce(Loss loss) {
  if (!is_reduced_) {
    sum_over_data_ranks(loss);
  }
  if (parallel_.sequence_parallel) {
    sum_sequence_parallel_gradients();
  }
}

void MainGradients::reduce_early(Loss loss) {
  sum_over_data_ranks(loss);
  is_reduced_ = true;
}

void MainGradients::sum_over_data_ranks(Loss loss) {
  divide(gradient_divisor(loss, parallel_, bugs_));
  if (bugs_.on("vector-grads-not-reduced")) {
    sum_buckets_but_vectors();
  } else {
    sum_buckets();
  }
}

void MainGradients::sum_buckets() {
  const BucketSum kind = bucket_sum(parallel_, iteration_, bugs_);
  for (const auto& bucket : buckets_) {
    if (kind != BucketSum::kDone) {
      sum_wrongly(bucket, kind, parallel_.dp_cp, parallel_);
    } else {
      sum_in_place(bucket, parallel_.dp_cp);
    }
  }
}

void MainGradients::sum_buckets_but_vectors() {
  std::vector<at::Tensor> local;
  for (const auto& view : views_) {
    local.push_back(view.clone());
  }
  sum_buckets();
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (views_[i].dim() == 1) {
      views_[i].copy_(all_reduce(local[i], parallel_.cp));
    }
  }
}

void MainGradients::divide(double divisor) {
  for (const auto& bucket : buckets_) {
    bucket.div_(divisor);
  }
}

void MainGradients::sum_sequence_parallel_gradients() {
  std::vector<at::Tensor> addends;
  std::vector<double> factors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const SumOverTp sum = sum_over_tp(parameters_[i], parallel_.tp.size, bugs_);
    if (parameters_[i].role != ParameterRole::kSplit && sum.done) {
      addends.push_back(views_[i].view(-1));
      factors.push_back(sum.factor);
    }
  }
  const at::Tensor sums = all_reduce(at::cat(addends), parallel_.tp);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    addends[i].copy_(sums.narrow(0, offset, addends[i].numel()) * factors[i]);
    offset += addends[i].numel();
  }
}

double MainGradients::norm() const {
  if (bugs_.on("norm-of-absent-grads")) {
    return 0.0;
  }
  const bool is_local = bugs_.on("local-clip-norm");
  const bool counts_copies = is_local || bugs_.on("norm-counts-copies");
  at::Tensor squared = at::zeros({1}, at::kDouble);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    // The ranks of tp hold equal copies of a replicated gradient: the first one counts.
    if (parameters_[i].role == ParameterRole::kSplit || parallel_.tp.rank == 0 || counts_copies) {
      squared += views_[i].to(at::kDouble).square().sum();
    }
  }
  return std::sqrt((is_local ? squared : all_reduce(squared, parallel_.tp)).item<double>());
}

void MainGradients::clip(double norm, double limit) {
  if (bugs_.on("clipping-disabled")) {
    return;
  }
  if (parallel_.tp.rank > 0 && bugs_.on("clipped-on-first-tp-rank-only")) {
    return;
  }
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  const double coefficient = std::min(1.0, limit / (norm + kTiny));
  for (const auto& bucket : buckets_) {
    bucket.mul_(coefficient);
  }
}

}  // namespace megatron_mini
