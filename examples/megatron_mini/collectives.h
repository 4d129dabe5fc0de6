// Communication between the ranks of a named process group.
//
// Every call goes through the dispatcher's c10d operators, so that whoever observes operators sees
// it; the C++ method names of c10d change between releases, the operator names do not. All ranks of
// a group make the same calls in the same order. Groups of one rank communicate nothing. A tensor
// goes through the backend that the group has for its device; `wait` means that what is enqueued
// later on the tensor's device sees the result.
//
// Thread-safety: one thread at a time per process (MPI_THREAD_SERIALIZED). That may be autograd's
// thread of a device, for which the caller of backward waits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megatron_mini {

// A registered process group, by name; an autograd node keeps the name and looks it up again.
struct Group {
  std::string name;
  int rank = 0;
  int size = 1;
};

[[nodiscard]] Group group_named(const std::string& name);

enum class Reduction : std::uint8_t { kSum, kMax };

// Returns a new contiguous tensor; the input may be strided and stays as it is.
[[nodiscard]] at::Tensor all_reduce(const at::Tensor& input,
                                    const Group& group,
                                    Reduction reduction = Reduction::kSum);
// Joins the ranks' tensors along dimension 0: [n, ...] -> [n * size, ...].
[[nodiscard]] at::Tensor all_gather(const at::Tensor& input, const Group& group);
// The same without waiting: what is returned waits for the result and hands it over, once.
[[nodiscard]] std::function<at::Tensor()> start_all_gather(const at::Tensor& input,
                                                           const Group& group);
// Sums and keeps this rank's part of dimension 0: [n, ...] -> [n / size, ...].
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& input, const Group& group);

// Sends the first sent[0] rows of the input to rank 0, the next sent[1] to rank 1, ..., and joins
// what the ranks sent here, received[r] rows of rank r: [sum of sent, ...] -> [sum of received,
// ...].
[[nodiscard]] at::Tensor all_to_all(const at::Tensor& input,
                                    const std::vector<std::int64_t>& sent,
                                    const std::vector<std::int64_t>& received,
                                    const Group& group);

// Begins to send and returns what waits until the tensor has left; call that once. The input may be
// strided. Two ranks' messages to each other are begun in the same order on both; otherwise ranks
// wait for ever with NCCL, or take one message for another.
[[nodiscard]] std::function<void()> start_sending(const at::Tensor& input,
                                                  const Group& group,
                                                  int destination);
// Begins to fill `result` and returns what waits for it; call that once. Requires: `result` is
// contiguous.
[[nodiscard]] std::function<void()> start_receiving(const at::Tensor& result,
                                                    const Group& group,
                                                    int source);

// Sends to the next rank of a ring and returns what the previous one sent; all ranks' tensors have
// one shape. The input may be strided.
[[nodiscard]] at::Tensor pass_on(const at::Tensor& input, const Group& group);

// In place. Requires: `tensor` is contiguous, otherwise c10::Error.
void sum_in_place(const at::Tensor& tensor, const Group& group);
void broadcast(const at::Tensor& tensor, const Group& group, int root);

void barrier(const Group& group);

// The lowest rank that calls with `flag` set, or nothing.
[[nodiscard]] std::optional<int> first_rank_with(bool flag, const Group& group);

}  // namespace megatron_mini
