// Numbers of calls that run again in backward.
#include "hooks/capture/call_numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

class CallsOfAFunction : public ::testing::Test {
 protected:
  // Calls it once in each of these checkpointed parts.
  void run(const std::vector<std::uint64_t>& parts) {
    for (const std::uint64_t part : parts) {
      (void)numbers_.take(id(false), {.part = part});
    }
  }
  // The numbers of calls that run again for these nodes of the graph.
  std::vector<int> run_again(const std::vector<std::uint64_t>& nodes) {
    std::vector<int> numbers;
    numbers.reserve(nodes.size());
    ++pass_;
    for (const std::uint64_t node : nodes) {
      const ForwardRun again{.again = true, .part = node, .pass = pass_};
      const int next = numbers_.next(id(true), again);
      numbers.push_back(numbers_.take(id(true), again));
      EXPECT_EQ(next, numbers.back());
    }
    return numbers;
  }

 private:
  static TensorId id(bool recompute) {
    TensorId id;
    id.path = "rope";
    id.recompute = recompute;
    return id;
  }
  CallNumbers numbers_;
  std::int64_t pass_ = 0;
};

// Symptom: three layers call one function, which is recomputed layer by layer; the last layer's
// value was compared with the first layer's.
TEST_F(CallsOfAFunction, RunAgainFromTheLastPartToTheFirst) {
  run({7, 7, 8, 8, 9, 9});
  EXPECT_EQ(run_again({30, 30, 20, 20, 10, 10}), (std::vector{4, 5, 2, 3, 0, 1}));
}

TEST_F(CallsOfAFunction, KeepTheirOrderWithinOnePart) {
  run({7, 7, 7});
  EXPECT_EQ(run_again({30, 30, 30}), (std::vector{0, 1, 2}));
}

TEST_F(CallsOfAFunction, MayStopEarlyInAPart) {
  run({7, 7, 8, 8});
  EXPECT_EQ(run_again({30, 10, 10}), (std::vector{2, 0, 1}));
}

TEST_F(CallsOfAFunction, OutsideOfPartsRunAgainInTheirOrder) {
  run({0, 0, 0});
  EXPECT_EQ(run_again({30, 20, 10}), (std::vector{0, 1, 2}));
}

// Symptom: under zero-bubble schedules with full recomputation, which runs a stage again for every
// group of weights, "the candidate recorded it, but the reference did not" of 1036 tensors.
TEST_F(CallsOfAFunction, HaveTheSameNumbersInEveryPassOfBackward) {
  run({7, 8});
  EXPECT_EQ(run_again({30, 20}), (std::vector{1, 0}));
  EXPECT_EQ(run_again({30, 20}), (std::vector{1, 0}));
}

TEST_F(CallsOfAFunction, ThatRunOftenerThanAtFirstGetNumbersOfTheirOwn) {
  run({7, 8});
  EXPECT_EQ(run_again({30, 20, 20}), (std::vector{1, 0, 2}));
  EXPECT_EQ(CallNumbers().next({}, {}), 0);
}

TEST_F(CallsOfAFunction, ThatRunInBackwardAloneHaveNumbersAsWell) {
  EXPECT_EQ(run_again({30, 30, 20}), (std::vector{0, 1, 2}));
}

}  // namespace
}  // namespace ttrace
