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
                                 std::vector<FlatBucket> buckets,
                                 const Bugs& bugs)
    : parameters_(std::move(parameters)),
      buckets_(std::move(buckets)),
      bugs_(bugs),
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
  if (!under_way_[b]) {
    return;
  }
  const at::Tensor gathered = std::exchange(under_way_[b], nullptr)();
  if (bugs_.on("gathered-parameters-dropped")) {
    return;
  }
  for (const auto& [i, offset] : buckets_[b].members) {
    // Like a collective that writes to the parameters' memory, unseen by autograd.
    const at::Tensor values = parameters_[i].tensor.variable_data().view(-1);
    values.copy_(gathered.narrow(0, offset, values.numel()));
  }
}

std::vector<std::string> ParameterGather::await(const std::string& module) {
  const bool waits_for_another =
      module == "decoder.layers.1" && bugs_.on("gather-of-wrong-bucket-awaited");
  const std::string owner = waits_for_another ? "decoder.layers.0" : module;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& members = buckets_[b].members;
    if (std::any_of(members.begin(), members.end(), [&](const FlatBucket::Member& member) {
          return belongs_to(parameters_[member.parameter].path, owner);
        })) {
      finish(b);
    }
  }
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
