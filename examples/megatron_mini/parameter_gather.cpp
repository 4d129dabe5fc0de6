#include "parameter_gather.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace megatron_mini {

namespace {

bool belongs_to(const std::string& parameter, const std::string& module) {
  return parameter.starts_with(module + ".");
}

}  // namespace

ParameterGather::ParameterGather(std::vector<ModelParameter> parameters,
                                 std::vector<FlatBucket> buckets)
    : parameters_(std::move(parameters)),
      buckets_(std::move(buckets)),
      under_way_(buckets_.size()),
      awaited_(parameters_.size(), true) {}

void ParameterGather::start() {
  awaited_.assign(parameters_.size(), false);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    const auto& options = parameters_[bucket.members.front().parameter].tensor.options();
    const at::Tensor flat = at::zeros({bucket.size}, options.requires_grad(false));
    for (const auto& [i, offset] : bucket.members) {
      const at::Tensor values = parameters_[i].tensor.detach().view(-1);
      flat.narrow(0, offset, values.numel()).copy_(values);
    }
    const at::Tensor mine = flat.narrow(0, bucket.part() * bucket.group.rank, bucket.part());
    under_way_[b] = start_all_gather(mine, bucket.group);
  }
}

void ParameterGather::finish(std::size_t b) {
  if (under_way_[b]) {
    hand_out(b, std::exchange(under_way_[b], nullptr)());
  }
}

void ParameterGather::hand_out(std::size_t bucket, const at::Tensor& gathered) {
  for (const auto& [i, offset] : buckets_[bucket].members) {
    // Like a collective that writes to the parameters' memory, unseen by autograd.
    const at::Tensor values = parameters_[i].tensor.variable_data().view(-1);
    values.copy_(gathered.narrow(0, offset, values.numel()));
  }
}

void ParameterGather::wait_for(const std::string& module) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& members = buckets_[b].members;
    if (std::any_of(members.begin(), members.end(), [&](const FlatBucket::Member& member) {
          return belongs_to(parameters_[member.parameter].path, module);
        })) {
      finish(b);
    }
  }
}

std::vector<std::string> ParameterGather::await(const std::string& module) {
  wait_for(module);
  std::vector<std::string> arrived;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!awaited_[i] && belongs_to(parameters_[i].path, module)) {
      awaited_[i] = true;
      arrived.push_back(parameters_[i].path);
    }
  }
  return arrived;
}

std::vector<std::string> ParameterGather::finish() {
  std::vector<std::string> arrived;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    finish(b);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!awaited_[i]) {
      awaited_[i] = true;
      arrived.push_back(parameters_[i].path);
    }
  }
  return arrived;
}

std::vector<std::string> ParameterGather::paths() const {
  std::vector<std::string> result;
  for (const auto& parameter : parameters_) {
    result.push_back(parameter.path);
  }
  return result;
}

}  // namespace megatron_mini
