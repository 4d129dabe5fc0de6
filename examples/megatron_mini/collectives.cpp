#include "collectives.h"

#include <ttrace/collective.h>

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

constexpr bool kAsync = true;
constexpr bool kSync = false;
constexpr std::int64_t kNoTimeout = -1;
constexpr std::int64_t kTag = 0;  // NCCL knows none; the order tells messages apart

// Calls a c10d operator; its Work is its last result. It is null where there is nothing to wait
// for, as after NCCL's synchronous collectives, which lie in the order of the current stream.
c10::intrusive_ptr<c10d::Work> start(const char* name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack.back().toCustomClass<c10d::Work>();
}

void wait_for(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work) {
    work->wait();
  }
}

void call(const char* name, std::vector<c10::IValue> stack) {
  wait_for(start(name, std::move(stack)));
}

c10::IValue group_value(const Group& group) {
  return c10::IValue(c10d::resolve_process_group(group.name));
}

c10::IValue reduce_value(Reduction reduction) {
  return c10::IValue(c10::make_intrusive<c10d::ReduceOp>(
      reduction == Reduction::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM));
}

// What the tracer learns of a call.
ttrace::CollectiveCall described(ttrace::CollectiveOperation operation,
                                 const Group& group,
                                 Reduction reduction = Reduction::kSum) {
  return {.operation = operation,
          .reduction = reduction == Reduction::kMax ? ttrace::CollectiveReduction::kMax
                                                    : ttrace::CollectiveReduction::kSum,
          .group = c10d::resolve_process_group(group.name)->getGroupDesc(),
          .rank = group.rank,
          .size = group.size};
}

// An exchange of rows of the first dimension, so many to and from every rank.
ttrace::CollectiveCall described_exchange(std::vector<std::int64_t> sent,
                                          std::vector<std::int64_t> received,
                                          const Group& group) {
  auto result = described(ttrace::CollectiveOperation::kAllToAll, group);
  result.rows_sent = std::move(sent);
  result.rows_received = std::move(received);
  return result;
}

// `count` rows for one rank, none for the others.
std::vector<std::int64_t> rows_of_one(std::int64_t count, int rank, const Group& group) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size), 0);
  rows.at(static_cast<std::size_t>(rank)) = count;
  return rows;
}

void all_reduce_in_place(const at::Tensor& tensor, const Group& group, Reduction reduction) {
  if (group.size > 1) {
    ttrace::Collective report(described(ttrace::CollectiveOperation::kAllReduce, group, reduction),
                              tensor);
    call("c10d::allreduce_",
         {std::vector<at::Tensor>{tensor},
          group_value(group),
          reduce_value(reduction),
          c10::IValue(),  // no sparse indices
          kSync,
          kNoTimeout});
    report.finished(tensor);
  }
}

// For the ranks' tensors along dimension 0.
at::Tensor room_for_all(const at::Tensor& input, const Group& group) {
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.at(0) *= group.size;
  return at::empty(shape, input.options());
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
  at::Tensor result = room_for_all(input, group);
  ttrace::Collective report(described(ttrace::CollectiveOperation::kAllGather, group), input);
  call("c10d::_allgather_base_",
       {result, input.contiguous(), group_value(group), kSync, kNoTimeout});
  report.finished(result);
  return result;
}

std::function<at::Tensor()> start_all_gather(const at::Tensor& input, const Group& group) {
  if (group.size == 1) {
    return [result = input.clone(at::MemoryFormat::Contiguous)] { return result; };
  }
  const at::Tensor result = room_for_all(input, group);
  ttrace::Collective report(described(ttrace::CollectiveOperation::kAllGather, group), input);
  auto work = start("c10d::_allgather_base_",
                    {result, input.contiguous(), group_value(group), kAsync, kNoTimeout});
  return [result, work = std::move(work), report]() mutable {
    wait_for(work);
    report.finished(result);
    return result;
  };
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
  ttrace::Collective report(described(ttrace::CollectiveOperation::kReduceScatter, group), input);
  call("c10d::_reduce_scatter_base_",
       {result,
        input.contiguous(),
        group_value(group),
        reduce_value(Reduction::kSum),
        kSync,
        kNoTimeout});
  report.finished(result);
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
  ttrace::Collective report(described_exchange(sent, received, group), input);
  call("c10d::alltoall_base_",
       {result, input.contiguous(), group_value(group), received, sent, kSync, kNoTimeout});
  report.finished(result);
  return result;
}

std::function<void()> start_sending(const at::Tensor& input, const Group& group, int destination) {
  const at::Tensor sent = input.contiguous();
  const auto sending =
      start("c10d::send",
            {std::vector<at::Tensor>{sent}, group_value(group), std::int64_t{destination}, kTag});
  return [sending, sent] { wait_for(sending); };
}

std::function<void()> start_receiving(const at::Tensor& result, const Group& group, int source) {
  const auto receiving =
      start("c10d::recv_",
            {std::vector<at::Tensor>{result}, group_value(group), std::int64_t{source}, kTag});
  return [receiving] { wait_for(receiving); };
}

at::Tensor pass_on(const at::Tensor& input, const Group& group) {
  if (group.size == 1) {
    return input.clone(at::MemoryFormat::Contiguous);
  }
  const int next = (group.rank + 1) % group.size;
  const int previous = (group.rank + group.size - 1) % group.size;
  // All ranks' messages are one exchange, in which each has rows for its next rank alone.
  ttrace::Collective report(described_exchange(rows_of_one(input.size(0), next, group),
                                               rows_of_one(input.size(0), previous, group),
                                               group),
                            input);
  const at::Tensor sent = input.contiguous();
  at::Tensor result = at::empty(input.sizes(), input.options());
  // Both are one operation of the backend: otherwise every rank would wait for its next.
  const auto ranks = c10d::resolve_process_group(group.name);
  ranks->startCoalescing(input.device().type());
  static_cast<void>(start_sending(sent, group, next));
  static_cast<void>(start_receiving(result, group, previous));
  wait_for(ranks->endCoalescing(input.device().type()));
  report.finished(result);
  return result;
}

void sum_in_place(const at::Tensor& tensor, const Group& group) {
  all_reduce_in_place(tensor, group, Reduction::kSum);
}

void broadcast(const at::Tensor& tensor, const Group& group, int root) {
  if (group.size > 1) {
    constexpr std::int64_t kRootTensor = 0;
    auto described_call = described(ttrace::CollectiveOperation::kBroadcast, group);
    described_call.root = root;
    ttrace::Collective report(described_call, tensor);
    call("c10d::broadcast_",
         {std::vector<at::Tensor>{tensor},
          group_value(group),
          std::int64_t{root},
          kRootTensor,
          kSync,
          kNoTimeout});
    report.finished(tensor);
  }
}

void barrier(const Group& group) {
  if (group.size > 1) {
    call("c10d::barrier",
         {at::empty({1}), group_value(group), std::vector<std::int64_t>{}, kSync, kNoTimeout});
  }
}

std::optional<int> first_rank_with(bool flag, const Group& group) {
  const std::int64_t mine = flag ? group.size - group.rank : 0;
  const auto largest =
      all_reduce(at::full({1}, mine, at::kLong), group, Reduction::kMax).item<std::int64_t>();
  return largest > 0 ? std::optional<int>(group.size - static_cast<int>(largest)) : std::nullopt;
}

}  // namespace megatron_mini
