#include "schedule.h"

#include <algorithm>
#include <map>
#include <optional>

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

namespace {

// The messages of one task; nothing where the first or last virtual stage has none.
struct TaskMessages {
  std::optional<Message> in;
  std::optional<Message> out;
};

TaskMessages messages_around(const Task& task, const StagePosition& position) {
  const std::int64_t place = std::int64_t{task.chunk} * position.stages + position.stage;
  const bool begins = place == 0;
  const bool ends = place + 1 == std::int64_t{position.chunks} * position.stages;
  const Message before{task.direction, place, task.microbatch};
  const Message behind{task.direction, place + 1, task.microbatch};
  const auto at_border = [](const Message& message, bool is_none) {
    return is_none ? std::nullopt : std::optional<Message>(message);
  };
  return task.direction == Direction::kForward
             ? TaskMessages{at_border(before, begins), at_border(behind, ends)}
             : TaskMessages{at_border(behind, ends), at_border(before, begins)};
}

// A stage on its way through its tasks.
struct Runner {
  StagePosition position;
  std::vector<Task> tasks;
  std::size_t next = 0;
  std::int64_t time = 0;  // at which it is free

  // Runs those tasks whose messages are there. Times are those at which messages come into being.
  bool run(std::map<Message, std::int64_t>& times) {
    const std::size_t first = next;
    for (; next < tasks.size(); ++next) {
      const auto [in, out] = messages_around(tasks[next], position);
      if (in && !times.contains(*in)) {
        break;
      }
      time = std::max(time, in ? times.at(*in) : 0) + 1;
      if (out) {
        times.emplace(*out, time);
      }
    }
    return next > first;
  }
};

}  // namespace

std::vector<Message> messages_of(int stages, int chunks, std::int64_t microbatches) {
  std::vector<Runner> runners;
  for (int stage = 0; stage < stages; ++stage) {
    const StagePosition position{.stage = stage, .stages = stages, .chunks = chunks};
    runners.push_back({.position = position, .tasks = schedule_of(position, microbatches)});
  }
  std::map<Message, std::int64_t> times;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (Runner& runner : runners) {
      goes_on = runner.run(times) || goes_on;
    }
  }
  std::vector<Message> messages;
  for (const auto& entry : times) {
    messages.push_back(entry.first);
  }
  std::stable_sort(messages.begin(), messages.end(), [&](const Message& a, const Message& b) {
    return times.at(a) < times.at(b);
  });
  return messages;
}

}  // namespace megatron_mini
