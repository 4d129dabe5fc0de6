#include "collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <numeric>
#include <utility>
#include <vector>

namespace megatron_mini {

namespace {

constexpr bool kAsync = false;
constexpr std::int64_t kNoTimeout = -1;

// Calls a c10d operator; its Work is its last result.
c10::intrusive_ptr<c10d::Work> start(const char* name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack.back().toCustomClass<c10d::Work>();
}

void call(const char* name, std::vector<c10::IValue> stack) {
  start(name, std::move(stack))->wait();
}

c10::IValue group_value(const Group& group) {
  return c10::IValue(c10d::resolve_process_group(group.name));
}

c10::IValue reduce_value(Reduction reduction) {
  return c10::IValue(c10::make_intrusive<c10d::ReduceOp>(
      reduction == Reduction::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM));
}

void all_reduce_in_place(const at::Tensor& tensor, const Group& group, Reduction reduction) {
  if (group.size > 1) {
    call("c10d::allreduce_",
         {std::vector<at::Tensor>{tensor},
          group_value(group),
          reduce_value(reduction),
          c10::IValue(),  // no sparse indices
          kAsync,
          kNoTimeout});
  }
}

}  // namespace

Group group_named(const std::string& name) {
  const auto group = c10d::resolve_process_group(name);
  return {name, group->getRank(), group->getSize()};
}

at::Tensor all_reduce(const at::Tensor& input, const Group& group, Reduction reduction) {
  at::Tensor result = input.clone(at::MemoryFormat::Contiguous);
  all_reduce_in_place(result, group, reduction);
  return result;
}

at::Tensor all_gather(const at::Tensor& input, const Group& group) {
  if (group.size == 1) {
    return input.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.at(0) *= group.size;
  at::Tensor result = at::empty(shape, input.options());
  call("c10d::_allgather_base_",
       {result, input.contiguous(), group_value(group), kAsync, kNoTimeout});
  return result;
}

at::Tensor reduce_scatter(const at::Tensor& input, const Group& group) {
  if (group.size == 1) {
    return input.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<std::int64_t> shape = input.sizes().vec();
  TORCH_CHECK(shape.at(0) % group.size == 0,
              "reduce-scatter over ",
              group.size,
              " ranks of a first dimension of ",
              shape.at(0));
  shape.at(0) /= group.size;
  at::Tensor result = at::empty(shape, input.options());
  call("c10d::_reduce_scatter_base_",
       {result,
        input.contiguous(),
        group_value(group),
        reduce_value(Reduction::kSum),
        kAsync,
        kNoTimeout});
  return result;
}

at::Tensor all_to_all(const at::Tensor& input,
                      const std::vector<std::int64_t>& sent,
                      const std::vector<std::int64_t>& received,
                      const Group& group) {
  if (group.size == 1) {
    return input.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.at(0) = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  at::Tensor result = at::empty(shape, input.options());
  call("c10d::alltoall_base_",
       {result, input.contiguous(), group_value(group), received, sent, kAsync, kNoTimeout});
  return result;
}

at::Tensor pass_on(const at::Tensor& input, const Group& group) {
  if (group.size == 1) {
    return input.clone(at::MemoryFormat::Contiguous);
  }
  constexpr std::int64_t kTag = 0;
  const std::int64_t next = (group.rank + 1) % group.size;
  const std::int64_t previous = (group.rank + group.size - 1) % group.size;
  const at::Tensor sent = input.contiguous();
  at::Tensor result = at::empty(input.sizes(), input.options());
  // Both are under way before either is waited for: otherwise every rank would wait for its next.
  const auto sending =
      start("c10d::send", {std::vector<at::Tensor>{sent}, group_value(group), next, kTag});
  const auto receiving =
      start("c10d::recv_", {std::vector<at::Tensor>{result}, group_value(group), previous, kTag});
  sending->wait();
  receiving->wait();
  return result;
}

void sum_in_place(const at::Tensor& tensor, const Group& group) {
  all_reduce_in_place(tensor, group, Reduction::kSum);
}

void broadcast(const at::Tensor& tensor, const Group& group, int root) {
  if (group.size > 1) {
    constexpr std::int64_t kRootTensor = 0;
    call("c10d::broadcast_",
         {std::vector<at::Tensor>{tensor},
          group_value(group),
          std::int64_t{root},
          kRootTensor,
          kAsync,
          kNoTimeout});
  }
}

void barrier(const Group& group) {
  if (group.size > 1) {
    call("c10d::barrier",
         {at::empty({1}), group_value(group), std::vector<std::int64_t>{}, kAsync, kNoTimeout});
  }
}

std::optional<int> first_rank_with(bool flag, const Group& group) {
  const std::int64_t mine = flag ? group.size - group.rank : 0;
  const auto largest =
      all_reduce(at::full({1}, mine, at::kLong), group, Reduction::kMax).item<std::int64_t>();
  return largest > 0 ? std::optional<int>(group.size - static_cast<int>(largest)) : std::nullopt;
}

}  // namespace megatron_mini
