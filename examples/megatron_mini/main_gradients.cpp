#include "main_gradients.h"

#include "error.h"
#include "wide_type.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace megatron_mini {

std::vector<ModelParameter> trained(std::vector<ModelParameter> parameters) {
  std::erase_if(parameters, [](const auto& item) { return !item.tensor.requires_grad(); });
  return parameters;
}

MainGradients::MainGradients(std::vector<ModelParameter> parameters, const Parallel& parallel)
    : MainGradients(
          trained(parameters),
          parallel,
          flat_buckets(trained(parameters), parallel.dp_cp, parallel.zero1, parallel.edp)) {}

MainGradients::MainGradients(std::vector<ModelParameter> parameters,
                             const Parallel& parallel,
                             std::vector<FlatBucket> layout)
    : parameters_(std::move(parameters)),
      parallel_(parallel),
      layout_(std::move(layout)),
      parts_(owned_parts(parameters_, layout_, parallel.zero1)),
      views_(parameters_.size()) {
  for (const auto& bucket : layout_) {
    const at::Tensor& first = parameters_[bucket.members.front().parameter].tensor;
    const auto type = wide_type(first);
    buckets_.push_back(at::zeros({bucket.size}, first.options().dtype(type)));
    for (const auto& [i, offset] : bucket.members) {
      const at::Tensor& parameter = parameters_[i].tensor;
      views_[i] = buckets_.back().narrow(0, offset, parameter.numel()).view(parameter.sizes());
    }
  }
}

void MainGradients::zero(std::int64_t iteration) {
  iteration_ = iteration;
  clear();
}

void MainGradients::clear() {
  for (const auto& bucket : buckets_) {
    bucket.zero_();
  }
}

void MainGradients::accumulate(std::int64_t microbatch, int chunk) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].chunk != chunk) {
      continue;
    }
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    require<InternalError>(
        gradient.defined(), parameters_[i].path, " got no gradient in this micro-batch");
    add(i, gradient, microbatch);
    gradient.reset();
  }
}

void MainGradients::add(std::size_t i, const at::Tensor& gradient, std::int64_t /*microbatch*/) {
  views_[i].add_(gradient);
}

bool MainGradients::is_of_experts(const FlatBucket& bucket) const {
  return is_of_expert(parameters_[bucket.members.front().parameter].role);
}

void MainGradients::reduce(Loss loss) {
  sum_over_data_ranks(loss);
  if (parallel_.sequence_parallel) {
    sum_sequence_parallel_gradients();
  }
  sum_replicated_expert_gradients();
  sum_tied_gradients();
}

double MainGradients::divisor(Loss loss) const {
  return loss == Loss::kMean ? parallel_.dp_cp.size : 1.0;
}

void MainGradients::sum_over_data_ranks(Loss loss) {
  const double dense = divisor(loss);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].div_(is_of_experts(layout_[i]) ? divisor_of_experts(dense) : dense);
  }
  sum_buckets();
}

void MainGradients::sum_buckets() {
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    sum_bucket(i);
  }
}

void MainGradients::sum_bucket(std::size_t bucket) {
  const Group& ranks = layout_[bucket].group;
  if (!parallel_.zero1) {
    sum_in_place(buckets_[bucket], ranks);
    return;
  }
  const std::int64_t part = layout_[bucket].part();
  buckets_[bucket]
      .narrow(0, part * ranks.rank, part)
      .copy_(reduce_scatter(buckets_[bucket], ranks));
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

bool MainGradients::is_addend(const ModelParameter& parameter) const {
  return parameter.role == ParameterRole::kReplicatedNorm ||
         parameter.role == ParameterRole::kReplicatedBias ||
         parameter.role == ParameterRole::kReplicatedRouter;
}

at::Tensor MainGradients::joined(const std::vector<at::Tensor>& addends) const {
  return at::cat(addends);
}

at::Tensor MainGradients::whole(const ModelParameter& /*parameter*/, const at::Tensor& sum) const {
  return sum;
}

const Group& MainGradients::tp_of(const ModelParameter& parameter) const {
  return parameter.ranks ? parameter.ranks->tp : parallel_.tp;
}

void MainGradients::sum_sequence_parallel_gradients() {
  std::vector<std::pair<Group, std::vector<std::size_t>>> groups;  // in the order of parameters
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_addend(parameters_[i])) {
      continue;
    }
    const Group& tp = tp_of(parameters_[i]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& other) {
      return other.first.name == tp.name;
    });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {tp, {}});
    }
    group->second.push_back(i);
  }
  // A stage of frozen layers alone has none, on all of its ranks.
  for (const auto& [tp, members] : groups) {
    sum_addends(members, tp);
  }
}

void MainGradients::sum_addends(const std::vector<std::size_t>& members, const Group& tp) {
  std::vector<at::Tensor> addends;
  for (const std::size_t i : members) {
    addends.push_back(views_[i].view(-1));
  }
  const at::Tensor sums = all_reduce(joined(addends), tp);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const at::Tensor sum = sums.narrow(0, offset, addends[i].numel());
    addends[i].copy_(whole(parameters_[members[i]], sum));
    offset += addends[i].numel();
  }
}

void MainGradients::sum_tied_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].path.starts_with("embedding.")) {
      sum_tied(views_[i]);
    }
  }
}

void MainGradients::sum_tied(const at::Tensor& gradient) {
  sum_in_place(gradient, parallel_.embedding);
}

double MainGradients::norm() const {
  const double dense = squared_norm(false);
  return std::sqrt(dense + squared_norm(true));
}

bool MainGradients::counts_in_norm(const ModelParameter& parameter) const {
  const bool is_split =
      parameter.role == ParameterRole::kSplit || parameter.role == ParameterRole::kExpertSplit;
  const int copy = is_of_expert(parameter.role) ? parallel_.etp.rank : tp_of(parameter).rank;
  // Ranks with other samples hold copies, or with zero1 other parts of the gradient.
  const bool is_first = parallel_.zero1 || !parameter.ranks || parameter.ranks->samples.rank == 0;
  return (is_split || copy == 0) && is_first && !parameter.is_second_copy;
}

double MainGradients::squared_norm(bool of_experts) const {
  at::Tensor squared = at::zeros({1}, at::TensorOptions(parallel_.device).dtype(at::kDouble));
  for (const OwnedPart& part : parts_) {
    const ModelParameter& parameter = parameters_[part.parameter];
    if (is_of_expert(parameter.role) == of_experts && counts_in_norm(parameter)) {
      squared += part.of(views_[part.parameter]).to(at::kDouble).square().sum();
    }
  }
  return sum_over_stages(sum_over_stage(squared, of_experts)).item<double>();
}

at::Tensor MainGradients::sum_over_stage(const at::Tensor& squared, bool of_experts) const {
  at::Tensor sum = all_reduce(squared, of_experts ? parallel_.etp_ep : parallel_.tp);
  if (parallel_.zero1) {
    sum_in_place(sum, of_experts ? parallel_.edp : parallel_.dp_cp);
  }
  return sum;
}

at::Tensor MainGradients::sum_over_stages(const at::Tensor& squared) const {
  return all_reduce(squared, parallel_.pp);
}

void MainGradients::clip(double norm, double limit) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    shorten(i, norm, limit);
  }
}

void MainGradients::shorten(std::size_t bucket, double norm, double limit) {
  constexpr double kTiny = 1e-6;  // keeps a norm of 0 finite, as in torch.nn.utils.clip_grad_norm_
  buckets_[bucket].mul_(std::min(1.0, limit / (norm + kTiny)));
}

}  // namespace megatron_mini
