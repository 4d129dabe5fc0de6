// What pipeline stages send each other: activations to the next virtual stage, their gradients
// back.
//
// Nobody waits for a message to be taken before all of the step's work is done, and a message says
// by its tag what it is; so a rank waits only for what its next task needs, in whatever order the
// others' schedules send it, and as no schedule needs what is computed later, none waits for ever.
//
// The micro-batch's trace records everything as `sent` and `received` under the path of the
// layer whose output travels: slot 0 the output, slot 1 its gradient.
//
// Thread-safety: none; one training thread.
#pragma once

#include "parallel.h"
#include "stage_layers.h"

#include <ttrace/session.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace megatron_mini {

class Transfers {
 public:
  // All activations have this shape and type; `chunks` are the layers of this rank's chunks.
  Transfers(const Parallel& parallel,
            std::vector<LayerRange> chunks,
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
  [[nodiscard]] int next() const { return (parallel_.pp.rank + 1) % parallel_.pp.size; }
  [[nodiscard]] int previous() const {
    return (parallel_.pp.rank + parallel_.pp.size - 1) % parallel_.pp.size;
  }
  // The tag of the message that crosses the border before this rank's chunk, or behind it.
  [[nodiscard]] std::int64_t tag(int chunk, bool behind, int slot, std::int64_t number) const;
  // The last layer before this rank's chunk, or its own last one.
  [[nodiscard]] std::string layer_before(int chunk) const;
  [[nodiscard]] std::string last_layer(int chunk) const;

  Parallel parallel_;
  std::vector<LayerRange> chunks_;
  std::vector<std::int64_t> shape_;
  at::TensorOptions options_;
  std::vector<std::function<void()>> under_way_;
};

}  // namespace megatron_mini
