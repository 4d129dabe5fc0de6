// What pipeline stages send each other: activations to the next virtual stage, their gradients
// back.
//
// All stages begin their messages in one order, that of messages_of(): before a rank sends, it has
// posted what it is to receive earlier in that order. So nobody waits for ever, even with NCCL,
// where two ranks' messages queue behind each other and a send ends when the message is taken, and
// the order alone tells messages apart. Nobody waits for a message to be taken before all of the
// step's work is done.
//
// The micro-batch's trace records everything as `sent` and `received` under the path of the
// layer whose output travels: slot 0 the output, slot 1 its gradient.
//
// Thread-safety: none; one training thread.
#pragma once

#include "parallel.h"
#include "schedule.h"
#include "stage_layers.h"

#include <ttrace/session.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace megatron_mini {

class Transfers {
 public:
  // Of a step of so many micro-batches on this data-parallel rank. All activations have this shape
  // and these options; `chunks` are the layers of this rank's chunks.
  Transfers(const Parallel& parallel,
            std::vector<LayerRange> chunks,
            std::int64_t microbatches,
            std::vector<std::int64_t> shape,
            const at::TensorOptions& options);
  ~Transfers() = default;
  Transfers(const Transfers&) = delete;  // messages under way are waited for once
  Transfers& operator=(const Transfers&) = delete;

  // One micro-batch, by its number on this data-parallel rank, and its trace.
  struct Cargo {
    std::int64_t number = 0;
    ttrace::Microbatch& traced;
  };

  // Calls come in the order of schedule_of(); any other one is an InternalError.
  // The output of the chunk before `chunk`, which waits for its gradient. Requires: there is one.
  [[nodiscard]] at::Tensor receive_activation(int chunk, const Cargo& cargo);
  void send_activation(int chunk, const Cargo& cargo, const at::Tensor& output);
  // The gradient of `chunk`'s output. Requires: a chunk follows.
  [[nodiscard]] at::Tensor receive_gradient(int chunk, const Cargo& cargo);
  // The gradient of what receive_activation() gave.
  void send_gradient(int chunk, const Cargo& cargo, const at::Tensor& gradient);

  // Waits until everything sent has left. Once, after the last task of a step.
  void finish();

 private:
  // On its way here.
  struct Incoming {
    at::Tensor tensor;
    std::function<void()> wait;
  };

  // The border before this rank's chunk, or the one behind it.
  [[nodiscard]] std::int64_t border(int chunk, bool behind) const;
  // The last layer before this rank's chunk, or its own last one.
  [[nodiscard]] std::string layer_before(int chunk) const;
  [[nodiscard]] std::string last_layer(int chunk) const;
  // Posts what is to be received before `message` and takes that off the list.
  void post_before(const Message& message);
  void post(const Message& message);
  void send(const Message& message, const at::Tensor& tensor);
  [[nodiscard]] at::Tensor receive(const Message& message);

  Parallel parallel_;
  std::vector<LayerRange> chunks_;
  std::vector<std::int64_t> shape_;
  at::TensorOptions options_;
  std::deque<Message> ahead_;  // of this rank, not yet begun
  std::map<Message, Incoming> incoming_;
  std::vector<std::function<void()>> under_way_;
};

}  // namespace megatron_mini
