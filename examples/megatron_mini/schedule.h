// The order in which a pipeline stage runs its micro-batches: Megatron-LM's two schedules.
//
// 1F1B: a stage runs as many forward passes as there are stages behind it, then one forward and one
// backward in turn, then the backward passes that are left, so that it never keeps the activations
// of more micro-batches than there are stages.
// Interleaved 1F1B: a stage holds several chunks of layers, chunk c of stage r being virtual stage
// c * stages + r. Micro-batches go through a chunk in groups of `stages`; the warm-up is longer,
// and chunk for chunk the bubble is shorter.
//
// Source: Megatron-LM, core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_without_interleaving and ..._with_interleaving.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace megatron_mini {

enum class Direction : std::uint8_t { kForward, kBackward };

struct Task {
  Direction direction = Direction::kForward;
  int chunk = 0;                // of this stage
  std::int64_t microbatch = 0;  // of this data-parallel rank, from 0

  bool operator==(const Task&) const = default;
};

struct StagePosition {
  int stage = 0;
  int stages = 1;
  int chunks = 1;  // on every stage
};

// Every micro-batch forward and backward through every chunk of the stage. With stages and chunks
// of 1 each, a micro-batch's backward follows its forward. Requires: with several chunks `stages`
// divides `microbatches`.
[[nodiscard]] std::vector<Task> schedule_of(const StagePosition& position,
                                            std::int64_t microbatches);

// What virtual stages hand each other: in forward an activation, in backward its gradient. Border b
// lies before virtual stage b.
struct Message {
  Direction direction = Direction::kForward;
  std::int64_t border = 0;
  std::int64_t microbatch = 0;

  auto operator<=>(const Message&) const = default;

  [[nodiscard]] int sender(int stages) const {
    return static_cast<int>((direction == Direction::kForward ? border - 1 : border) % stages);
  }
  [[nodiscard]] int receiver(int stages) const {
    return static_cast<int>((direction == Direction::kForward ? border : border - 1) % stages);
  }
};

// All messages of a step, in the order in which they come into being if every task takes equally
// long. Requires: as of schedule_of(); at least 2 stages.
//
// If all stages begin to send and to receive in this order, nobody waits for ever, not even where a
// send ends only once the message is taken and where two stages' messages queue behind each other:
// a message needs nothing that comes later in it.
[[nodiscard]] std::vector<Message> messages_of(int stages, int chunks, std::int64_t microbatches);

}  // namespace megatron_mini
