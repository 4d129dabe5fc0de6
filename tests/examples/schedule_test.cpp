// The order of a pipeline stage's tasks, without any rank.
#include "schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using megatron_mini::Direction;
using megatron_mini::Message;
using megatron_mini::messages_of;
using megatron_mini::schedule_of;
using megatron_mini::StagePosition;
using megatron_mini::Task;

// "F0.2" is micro-batch 2 forward through chunk 0.
std::string text_of(const std::vector<Task>& tasks) {
  std::string text;
  for (const Task& task : tasks) {
    text += (text.empty() ? "" : " ") +
            std::string(task.direction == Direction::kForward ? "F" : "B") +
            std::to_string(task.chunk) + "." + std::to_string(task.microbatch);
  }
  return text;
}

TEST(Schedule, SingleStageGoesBackwardAfterEachForward) {
  EXPECT_EQ(text_of(schedule_of({}, 3)), "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2");
}

TEST(Schedule, StagesWarmUpByTheNumberOfStagesBehindThem) {
  EXPECT_EQ(text_of(schedule_of({.stage = 0, .stages = 3}, 4)),
            "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
  EXPECT_EQ(text_of(schedule_of({.stage = 1, .stages = 3}, 4)),
            "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3");
  EXPECT_EQ(text_of(schedule_of({.stage = 2, .stages = 3}, 4)),
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3");
}

TEST(Schedule, FewerMicroBatchesThanStagesAreAllForwardFirst) {
  EXPECT_EQ(text_of(schedule_of({.stage = 0, .stages = 4}, 2)), "F0.0 F0.1 B0.0 B0.1");
}

// Computed by hand from Megatron-LM's get_schedule_table and warm-up.
TEST(Schedule, InterleavedStagesGoThroughTheirChunksInGroups) {
  EXPECT_EQ(text_of(schedule_of({.stage = 0, .stages = 2, .chunks = 2}, 4)),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(text_of(schedule_of({.stage = 1, .stages = 2, .chunks = 2}, 4)),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

using Done = std::set<std::tuple<Direction, std::int64_t, std::int64_t>>;  // virtual stage, number

// Whether the prerequisites of a task are done: its input, or its output's gradient and its
// forward.
bool can_run(const Task& task, std::int64_t place, std::int64_t places, const Done& done) {
  if (task.direction == Direction::kForward) {
    return place == 0 || done.contains({Direction::kForward, place - 1, task.microbatch});
  }
  return done.contains({Direction::kForward, place, task.microbatch}) &&
         (place + 1 == places || done.contains({Direction::kBackward, place + 1, task.microbatch}));
}

// All stages together, each one running its next task when it can. Returns the number of tasks run.
std::size_t run_all(int stages, int chunks, std::int64_t microbatches) {
  std::vector<std::vector<Task>> left;
  for (int stage = 0; stage < stages; ++stage) {
    left.push_back(schedule_of({stage, stages, chunks}, microbatches));
    std::reverse(left.back().begin(), left.back().end());
  }
  Done done;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int stage = 0; stage < stages; ++stage) {
      auto& tasks = left[static_cast<std::size_t>(stage)];
      while (!tasks.empty()) {
        const Task task = tasks.back();
        const std::int64_t place = std::int64_t{task.chunk} * stages + stage;
        if (!can_run(task, place, std::int64_t{stages} * chunks, done)) {
          break;
        }
        EXPECT_TRUE(done.insert({task.direction, place, task.microbatch}).second);
        tasks.pop_back();
        goes_on = true;
      }
    }
  }
  return done.size();
}

TEST(Schedule, NoStageWaitsForEver) {
  for (const int stages : {1, 2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 3}) {
      if (stages == 1 && chunks > 1) {
        continue;
      }
      for (const std::int64_t groups : {1, 2, 5}) {
        const std::int64_t microbatches = groups * (chunks > 1 ? stages : 1);
        EXPECT_EQ(run_all(stages, chunks, microbatches),
                  static_cast<std::size_t>(2 * stages * chunks * microbatches))
            << stages << " stages, " << chunks << " chunks, " << microbatches << " micro-batches";
      }
    }
  }
}

using Calls = std::vector<std::vector<Message>>;  // by stage, in order

// Every stage begins its messages in the common order.
Calls in_common_order(int stages, const std::vector<Message>& order) {
  Calls calls(static_cast<std::size_t>(stages));
  for (const Message& message : order) {
    calls[static_cast<std::size_t>(message.sender(stages))].push_back(message);
    calls[static_cast<std::size_t>(message.receiver(stages))].push_back(message);
  }
  return calls;
}

// Every stage receives what a task needs, and then sends what the task gives.
Calls in_order_of_tasks(int stages, int chunks, std::int64_t microbatches) {
  Calls calls;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Message>& own = calls.emplace_back();
    for (const Task& task : schedule_of({stage, stages, chunks}, microbatches)) {
      const std::int64_t place = std::int64_t{task.chunk} * stages + stage;
      const bool forward = task.direction == Direction::kForward;
      for (const std::int64_t border : {forward ? place : place + 1, forward ? place + 1 : place}) {
        if (border > 0 && border < std::int64_t{stages} * chunks) {
          own.push_back({task.direction, border, task.microbatch});
        }
      }
    }
  }
  return calls;
}

// How many messages are taken where both ranks wait for each other at every message, as they do
// when NCCL sets a pair's communicator up, or where it has no room for a message that is not taken.
std::int64_t exchanged(int stages, Calls calls) {
  for (auto& own : calls) {
    std::reverse(own.begin(), own.end());
  }
  std::int64_t count = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (auto& own : calls) {
      if (own.empty()) {
        continue;
      }
      const Message message = own.back();
      auto& there = calls[static_cast<std::size_t>(message.receiver(stages))];
      if (&own != &there && !there.empty() && there.back() == message) {
        own.pop_back();
        there.pop_back();
        ++count;
        goes_on = true;
      }
    }
  }
  return count;
}

struct Shape {
  int stages;
  int chunks;
  [[nodiscard]] std::int64_t microbatches() const { return 2 * std::int64_t{stages}; }
  [[nodiscard]] std::int64_t messages() const {
    return 2 * (std::int64_t{stages} * chunks - 1) * microbatches();
  }
};

std::vector<Shape> shapes() {
  std::vector<Shape> result;
  for (const int stages : {2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 4}) {
      result.push_back({stages, chunks});
    }
  }
  return result;
}

// With NCCL two stages' messages queue behind each other. A stage that sent its next activation
// before it took the gradient that its neighbour sends first waited for ever, and so did the
// neighbour.
TEST(Messages, ACommonOrderLetsAllOfThemThroughWhereThatOfTasksDoesNot) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(std::to_string(shape.stages) + " stages, " + std::to_string(shape.chunks));
    const auto order = messages_of(shape.stages, shape.chunks, shape.microbatches());
    EXPECT_EQ(std::ssize(order), shape.messages());
    EXPECT_EQ(exchanged(shape.stages, in_common_order(shape.stages, order)), shape.messages());
    const Calls of_tasks = in_order_of_tasks(shape.stages, shape.chunks, shape.microbatches());
    EXPECT_LT(exchanged(shape.stages, of_tasks), shape.messages());
  }
}

// So a stage has sent all that comes before a message by the time it asks for that message.
TEST(Messages, OfAStageAreInTheOrderOfItsTasksButForWhatItReceivesEarly) {
  for (const Shape& shape : shapes()) {
    const auto [stages, chunks] = shape;
    const Calls common = in_common_order(stages, messages_of(stages, chunks, shape.microbatches()));
    const Calls of_tasks = in_order_of_tasks(stages, chunks, shape.microbatches());
    for (std::size_t stage = 0; stage < common.size(); ++stage) {
      std::set<Message> early;
      auto next = common[stage].begin();
      for (const Message& asked : of_tasks[stage]) {
        if (early.erase(asked) > 0) {
          continue;
        }
        for (; next != common[stage].end() && *next != asked; ++next) {
          EXPECT_EQ(next->receiver(stages), static_cast<int>(stage));
          early.insert(*next);
        }
        ASSERT_NE(next, common[stage].end());
        ++next;
      }
      EXPECT_TRUE(early.empty());
    }
  }
}

TEST(Schedule, StageKeepsNoMoreMicroBatchesThanThereAreStagesBehindIt) {
  for (int stage = 0; stage < 4; ++stage) {
    int kept = 0;
    int most = 0;
    for (const Task& task : schedule_of({.stage = stage, .stages = 4}, 16)) {
      kept += task.direction == Direction::kForward ? 1 : -1;
      most = std::max(most, kept);
    }
    EXPECT_EQ(most, 4 - stage);
  }
}

}  // namespace
