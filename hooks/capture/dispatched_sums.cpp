#include "hooks/capture/dispatched_sums.h"

#include "hooks/base/simulated_parts.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// Positions of an operator's arguments. The reduction follows the process group.
struct Signature {
  std::string_view name;
  std::size_t input;   // a tensor, a list, or a list per rank of a list
  std::size_t output;  // the same of results; `input` where it is in place
  std::size_t group;
};

constexpr std::array<Signature, 5> kReductions{{
    {"c10d::allreduce_", 0, 0, 1},
    {"c10d::allreduce_coalesced_", 0, 0, 1},
    {"c10d::_reduce_scatter_base_", 1, 0, 2},
    {"c10d::reduce_scatter_", 1, 0, 2},
    {"c10d::reduce_scatter_tensor_coalesced_", 1, 0, 2},
}};

// Simulated ranks compute it without one of these operators.
constexpr std::string_view kSimulatedScatter = "_c10d_functional::reduce_scatter_tensor";

// Lists within lists flattened: one entry for every element of the outermost one.
std::vector<std::vector<at::Tensor>> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return {{value.toTensor()}};
  }
  std::vector<std::vector<at::Tensor>> result;
  for (const c10::IValue& item : value.toListRef()) {
    result.push_back(item.isTensor() ? std::vector<at::Tensor>{item.toTensor()}
                                     : item.toTensorVector());
  }
  return result;
}

// The factor of an addend in the result; nothing for reductions that are no sums.
std::optional<double> weight_of(const c10d::ReduceOp& reduction, int ranks) {
  switch (reduction.op_) {
    case c10d::ReduceOp::SUM:
      return 1.0;
    case c10d::ReduceOp::AVG:
      return 1.0 / ranks;
    case c10d::ReduceOp::PREMUL_SUM: {  // NCCL's: FSDP2 sums so with a divisor of its own
      const auto* const factor =
          dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(reduction.supplement_.get());
      return factor == nullptr                 ? std::nullopt
             : factor->tensor_factor.defined() ? std::optional(factor->tensor_factor.item<double>())
                                               : std::optional(factor->double_factor);
    }
    default:
      return std::nullopt;
  }
}

// The sum that `sum` says, or, of tensors that wrap the parts of all simulated ranks, that of each.
void add_sums(const DispatchedSum& sum,
              const at::Tensor& output,
              bool simulated,
              std::vector<DispatchedSum>& result) {
  if (!simulated) {
    result.push_back({sum.parts, output.numel(), sum.ranks, sum.weight});
    return;
  }
  const std::size_t first = result.size();
  for (const at::Tensor& own : unwrapped_parts(output)) {
    result.push_back({{}, own.numel(), sum.ranks, sum.weight});
  }
  for (const at::Tensor& part : sum.parts) {
    const std::vector<at::Tensor> parts = unwrapped_parts(part);
    for (std::size_t rank = 0; rank < std::min(parts.size(), result.size() - first); ++rank) {
      result[first + rank].parts.push_back(parts[rank]);
    }
  }
}

// (input, reduction, size of the group, group) of `kSimulatedScatter`.
std::vector<DispatchedSum> scattered_sums(c10::ArrayRef<const c10::IValue> inputs) {
  const std::string reduction = inputs[1].toStringRef();
  const auto ranks = static_cast<int>(inputs[2].toInt());
  std::vector<DispatchedSum> result;
  if (ranks == 1 || (reduction != "sum" && reduction != "avg")) {
    return result;
  }
  for (const at::Tensor& part : unwrapped_parts(inputs[0].toTensor())) {
    result.push_back({{part}, part.numel() / ranks, ranks, reduction == "avg" ? 1.0 / ranks : 1.0});
  }
  return result;
}

}  // namespace

std::vector<DispatchedSum> dispatched_sums(std::string_view name,
                                           c10::ArrayRef<const c10::IValue> inputs,
                                           bool simulated) {
  if (name == kSimulatedScatter) {
    return simulated ? scattered_sums(inputs) : std::vector<DispatchedSum>();
  }
  const auto found = std::find_if(kReductions.begin(), kReductions.end(), [&](const auto& known) {
    return known.name == name;
  });
  if (found == kReductions.end() || inputs.size() < found->group + 2) {
    return {};
  }
  const int ranks = inputs[found->group].toCustomClass<c10d::ProcessGroup>()->getSize();
  const auto reduction = inputs[found->group + 1].toCustomClass<c10d::ReduceOp>();
  const std::optional<double> weight = weight_of(*reduction, ranks);
  if (ranks == 1 || !weight) {
    return {};
  }
  auto addends = tensors_of(inputs[found->input]);
  const auto sums = tensors_of(inputs[found->output]);
  std::vector<DispatchedSum> result;
  for (std::size_t i = 0; i < std::min(addends.size(), sums.size()); ++i) {
    if (addends[i].empty() || sums[i].empty()) {
      continue;
    }
    add_sums({std::move(addends[i]), 0, ranks, *weight}, sums[i].front(), simulated, result);
  }
  return result;
}

}  // namespace ttrace
