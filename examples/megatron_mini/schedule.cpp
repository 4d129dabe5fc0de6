#include "schedule.h"

#include <algorithm>

namespace megatron_mini {

namespace {

// Forward passes before the first backward.
std::int64_t warm_up(const StagePosition& position, std::int64_t passes) {
  const std::int64_t behind = position.stages - position.stage - 1;
  const std::int64_t wanted =
      position.chunks == 1 ? behind
                           : 2 * behind + std::int64_t{position.chunks - 1} * position.stages;
  return std::min(wanted, passes);
}

// The k-th forward pass of a stage; also the k-th backward pass, but for the chunks' order.
Task forward_pass(const StagePosition& position, std::int64_t k) {
  if (position.chunks == 1) {
    return {Direction::kForward, 0, k};
  }
  const std::int64_t group = std::int64_t{position.stages} * position.chunks;
  return {Direction::kForward,
          static_cast<int>(k % group / position.stages),
          k / group * position.stages + k % position.stages};
}

Task backward_pass(const StagePosition& position, std::int64_t k) {
  Task task = forward_pass(position, k);
  task.direction = Direction::kBackward;
  task.chunk = position.chunks - 1 - task.chunk;
  return task;
}

}  // namespace

std::vector<Task> schedule_of(const StagePosition& position, std::int64_t microbatches) {
  const std::int64_t passes = microbatches * position.chunks;
  const std::int64_t ahead = warm_up(position, passes);
  std::vector<Task> tasks;
  for (std::int64_t k = 0; k < passes + ahead; ++k) {
    if (k < passes) {
      tasks.push_back(forward_pass(position, k));
    }
    if (k >= ahead) {
      tasks.push_back(backward_pass(position, k - ahead));
    }
  }
  return tasks;
}

}  // namespace megatron_mini
