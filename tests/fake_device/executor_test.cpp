// Order of work, waits, gates, captures and reuse of memory, without torch.
#include "fake_device/executor.h"

#include "fake_device/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ttrace::testing::fake {
namespace {

const StreamKey kMain{0, 0};
const StreamKey kSide{0, 1};
const StreamKey kOther{1, 0};

// What deadlocks say.
std::string deadlock_of(const std::function<void()>& wait) {
  try {
    wait();
  } catch (const Deadlock& error) {
    return error.what();
  }
  return "none";
}

class ExecutorTest : public ::testing::Test {
 protected:
  void log(StreamKey stream, const std::string& letter) {
    executor.enqueue(stream, letter, [this, letter] { order += letter; });
  }

  Executor executor;
  std::string order;
};

TEST_F(ExecutorTest, RunsAllOrdersThatStreamsAndEventsAllow) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    executor.reset(seed, Policy::kSeeded);
    order.clear();
    log(kMain, "a");
    log(kMain, "b");
    executor.block(kSide, executor.record(kMain));
    log(kMain, "c");
    log(kSide, "x");
    log(kSide, "y");
    executor.wait_device(0);
    orders.insert(order);
  }
  // x and y come after b, and c anywhere after b.
  EXPECT_EQ(orders, (std::set<std::string>{"abcxy", "abxcy", "abxyc"}));
}

TEST_F(ExecutorTest, RepeatsAnOrderFromItsSeed) {
  const auto run = [this](std::uint64_t seed) {
    executor.reset(seed, Policy::kSeeded);
    order.clear();
    for (int turn = 0; turn < 40; ++turn) {
      log({turn % 2, turn % 3}, std::string(1, static_cast<char>('A' + turn)));
    }
    executor.wait_device(0);
    executor.wait_device(1);
    return order;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

TEST_F(ExecutorTest, RunsOnlyWhatALazyWaitNeeds) {
  executor.reset(0, Policy::kLazy);
  log(kMain, "a");
  const SignalRef event = executor.record(kMain);
  log(kMain, "b");
  log(kOther, "z");
  executor.block(kSide, event);
  log(kSide, "x");
  EXPECT_EQ(order, "");
  executor.wait_stream(kSide);
  EXPECT_EQ(order, "ax");
  executor.wait_device(0);
  EXPECT_EQ(order, "axb");
  EXPECT_FALSE(executor.idle());
}

TEST_F(ExecutorTest, RunsAtOnceWhereItIsEager) {
  executor.reset(0, Policy::kEager);
  const SignalRef gate = Executor::make_gate("start", Opener::kThisThread);
  executor.block(kSide, gate);
  log(kSide, "x");
  log(kMain, "a");
  EXPECT_EQ(order, "a");
  executor.open(gate);
  EXPECT_EQ(order, "ax");
}

TEST_F(ExecutorTest, NamesStreamAndGateOfADeadlock) {
  for (const Policy policy : {Policy::kSeeded, Policy::kLazy, Policy::kEager}) {
    executor.reset(1, policy);
    order.clear();
    const SignalRef gate = Executor::make_gate("receive 7", Opener::kThisThread);
    executor.block(kSide, gate);
    log(kSide, "x");
    log(kMain, "a");
    executor.wait_stream(kMain);
    EXPECT_EQ(order, "a");
    EXPECT_EQ(
        deadlock_of([this] { executor.wait_device(0); }),
        "deadlock: fake:0 stream 1 waits for gate receive 7, and nothing that may run opens it");
    executor.open(gate);
    executor.wait_device(0);
    EXPECT_EQ(order, "ax");
  }
}

TEST_F(ExecutorTest, FindsStreamsThatWaitForEachOther) {
  executor.reset(0, Policy::kLazy);
  const SignalRef first = Executor::make_gate("first", Opener::kThisThread);
  const SignalRef second = Executor::make_gate("second", Opener::kThisThread);
  executor.block(kMain, first);
  executor.open_on(kMain, second);
  executor.block(kSide, second);
  executor.open_on(kSide, first);
  EXPECT_EQ(
      deadlock_of([this] { executor.wait_stream(kMain); }),
      "deadlock: fake:0 stream 0 waits for gate first, fake:0 stream 1 waits for gate second, "
      "and nothing that may run opens it");
}

TEST_F(ExecutorTest, WaitsForAnotherThreadToOpenAGate) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    executor.reset(seed, Policy::kSeeded);
    order.clear();
    const SignalRef gate = Executor::make_gate("message", Opener::kOtherThread);
    executor.block(kMain, gate);
    log(kMain, "a");
    std::thread sender([&] {
      executor.wait_stream(kSide);
      executor.open(gate);
    });
    executor.wait_event(executor.record(kMain));
    EXPECT_EQ(order, "a");
    sender.join();
  }
}

TEST_F(ExecutorTest, ServesSeveralThreads) {
  executor.reset(3, Policy::kSeeded);
  int sum = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 200; ++turn) {
        executor.enqueue({0, thread % 2}, "add", [&sum] { ++sum; });
        if (turn % 17 == 0) {
          executor.wait_event(executor.record({0, thread % 2}));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  executor.wait_device(0);
  EXPECT_EQ(sum, 800);
}

TEST_F(ExecutorTest, EndsALoopOfQueries) {
  for (const Policy policy : {Policy::kSeeded, Policy::kLazy}) {
    executor.reset(2, policy);
    log(kMain, "a");
    log(kMain, "b");
    const SignalRef event = executor.record(kMain);
    while (!executor.query(event)) {
    }
    EXPECT_TRUE(executor.query_stream(kMain));
  }
}

TEST_F(ExecutorTest, ThrowsAnErrorOfWorkAtTheNextWait) {
  executor.reset(0, Policy::kEager);
  executor.enqueue(kMain, "fail", [] { throw std::out_of_range("index"); });
  EXPECT_THROW(executor.wait_stream(kSide), std::out_of_range);
  executor.wait_stream(kMain);
}

TEST_F(ExecutorTest, ForbidsWaitsWhileAStreamCaptures) {
  executor.reset(0, Policy::kEager);
  const std::vector<std::function<void()>> waits = {
      [this] { executor.wait_device(0); },
      [this] { executor.wait_stream(kMain); },
      [this] { executor.wait_stream(kSide); },
      [this] { executor.wait_event(executor.record(kMain)); },
      [this] { executor.block(kSide, executor.record(kOther)); }};
  for (const auto& wait : waits) {
    executor.begin_capture(kSide);
    EXPECT_TRUE(executor.capturing(kSide));
    EXPECT_THROW(wait(), CaptureError);
    EXPECT_THROW((void)executor.end_capture(kSide), CaptureError);
    EXPECT_FALSE(executor.capturing(kSide));
  }
  executor.begin_capture(kSide, CaptureMode::kThreadLocal);
  std::thread([this] { executor.wait_event(executor.record(kMain)); }).join();
  EXPECT_TRUE(executor.end_capture(kSide)->empty());
  executor.begin_capture(kSide);
  std::thread([this] {
    EXPECT_EQ(Executor::exchange_thread_mode(CaptureMode::kRelaxed), CaptureMode::kGlobal);
    executor.wait_event(executor.record(kMain));
  }).join();
  EXPECT_TRUE(executor.end_capture(kSide)->empty());
}

TEST_F(ExecutorTest, ReplaysWhatStreamsOfACaptureEnqueued) {
  executor.reset(0, Policy::kEager);
  executor.begin_capture(kSide);
  log(kSide, "x");
  executor.block(kMain, executor.record(kSide));
  EXPECT_TRUE(executor.capturing(kMain));
  log(kMain, "m");
  executor.block(kSide, executor.record(kMain));
  log(kOther, "o");
  const Graph graph = executor.end_capture(kSide);
  EXPECT_EQ(order, "o");
  executor.replay(graph, kMain);
  executor.replay(graph, kMain);
  EXPECT_EQ(order, "oxmxm");
}

class BlockCacheTest : public ExecutorTest {
 protected:
  BlockCache blocks{executor};
};

TEST_F(BlockCacheTest, HandsOutWhatWasFreedLast) {
  Block* const first = blocks.take(1000, kMain);
  Block* const second = blocks.take(900, kMain);
  EXPECT_EQ(blocks.stats(0).in_use, 1900U);
  EXPECT_EQ(blocks.find(second->address + 1023), second);
  blocks.give_back(first);
  blocks.give_back(second);
  EXPECT_EQ(blocks.find(second->address), nullptr);
  Block* const elsewhere = blocks.take(1000, kSide);
  EXPECT_NE(elsewhere, second);
  EXPECT_EQ(blocks.take(600, kMain), second);
  EXPECT_EQ(blocks.take(1024, kMain), first);
  EXPECT_EQ(blocks.stats(0).peak, 2624U);
  EXPECT_EQ(blocks.stats(0).allocations, 5U);
  EXPECT_EQ(blocks.stats(0).reuses, 2U);
  EXPECT_EQ(blocks.take(0, kMain), nullptr);
  blocks.give_back(elsewhere);
  blocks.give_back(first);
  blocks.give_back(second);
  blocks.clear();
}

TEST_F(BlockCacheTest, WaitsForRecordedStreams) {
  executor.reset(0, Policy::kLazy);
  Block* const block = blocks.take(1000, kMain);
  blocks.record(block, kSide);
  log(kSide, "x");
  blocks.give_back(block);
  log(kSide, "y");
  Block* const other = blocks.take(1000, kMain);
  EXPECT_NE(other, block);
  EXPECT_EQ(blocks.stats(0).waiting, 1U);
  executor.wait_stream(kSide);
  EXPECT_EQ(blocks.take(1000, kMain), block);
  blocks.give_back(block);
  blocks.give_back(other);
  blocks.clear();
}

TEST_F(BlockCacheTest, KeepsMemoryOfACaptureApart) {
  executor.begin_capture(kSide);
  Block* const captured = blocks.take(1000, kSide);
  blocks.give_back(captured);
  EXPECT_EQ(blocks.take(1000, kSide), captured);
  blocks.give_back(captured);
  EXPECT_TRUE(executor.end_capture(kSide)->empty());
  Block* const later = blocks.take(1000, kSide);
  EXPECT_NE(later, captured);
  blocks.give_back(later);
  blocks.clear();
}

}  // namespace
}  // namespace ttrace::testing::fake
