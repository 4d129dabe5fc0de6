// The order of a pipeline stage's tasks, without any rank.
#include "schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using megatron_mini::Direction;
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
