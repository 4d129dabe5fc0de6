#include "hooks/write/writer_thread.h"

#include "support/temporary_directory.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>

namespace ttrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// The inputs of the sink, in order; outlives the sink.
struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  void add(std::string line) {
    const std::lock_guard lock(mutex);
    lines.push_back(std::move(line));
  }
};

class LoggingSink : public Sink {
 public:
  LoggingSink(Log& log, std::shared_future<void> gate) : log_(log), gate_(std::move(gate)) {}
  void begin_step(std::int64_t step, std::uint64_t /*began*/) override {
    log_.add("begin " + std::to_string(step));
  }
  void append(Record record, std::span<const std::byte> bytes) override {
    if (gate_.valid()) {
      gate_.wait();
    }
    if (record.id.path == "bad") {
      throw std::runtime_error("disk full");
    }
    log_.add(record.id.path + " " + std::to_string(bytes.size()));
  }
  void note(std::string remark) override { log_.add(remark); }
  void flush() override { log_.add("flush"); }
  void end_step(bool whole) override { log_.add(whole ? "commit" : "drop"); }

 private:
  Log& log_;
  std::shared_future<void> gate_;
};

Record named(const std::string& path) {
  Record record;
  record.id.path = path;
  return record;
}

std::unique_ptr<Sink> sink(Log& log, std::shared_future<void> gate = {}) {
  return std::make_unique<LoggingSink>(log, std::move(gate));
}

void no_error(std::exception_ptr) {
  ADD_FAILURE() << "the sink threw";
}

TEST(WriterThread, WritesInOrderAndEndStepWaitsForAll) {
  Log log;
  WriterThread writer(sink(log), no_error);
  writer.begin_step(3, 0);
  writer.append(named("a"), std::vector<std::byte>(4));
  writer.note("remark");
  writer.append(named("b"), std::vector<std::byte>(5));
  writer.flush();
  writer.end_step([] { return true; });
  EXPECT_THAT(log.lines, ElementsAre("begin 3", "a 4", "remark", "b 5", "flush", "commit"));
}

TEST(WriterThread, ManyRecordsPassThroughATinyQueueWithoutLoss) {
  Log log;
  WriterThread writer(sink(log), no_error, 10);
  for (int i = 0; i < 2000; ++i) {
    writer.append(named(std::to_string(i)), std::vector<std::byte>(7));
  }
  writer.append(named("larger-than-the-queue"), std::vector<std::byte>(1000));
  writer.end_step([] { return true; });
  ASSERT_EQ(log.lines.size(), 2002U);
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(log.lines[static_cast<std::size_t>(i)], std::to_string(i) + " 7");
  }
}

TEST(WriterThread, AFullQueueBlocksTheCallerUntilThereIsRoom) {
  Log log;
  std::promise<void> gate;
  WriterThread writer(sink(log, gate.get_future().share()), no_error, 10);
  std::atomic<int> queued{0};
  std::thread producer([&] {
    for (int i = 0; i < 3; ++i) {
      writer.append(named(std::to_string(i)), std::vector<std::byte>(6));
      ++queued;
    }
  });
  while (queued < 1) {
    std::this_thread::yield();
  }
  // The first is being written and counts until it is; the second does not fit next to it.
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::yield();
    ASSERT_EQ(queued, 1);
  }
  gate.set_value();
  producer.join();
  writer.end_step([] { return true; });
  EXPECT_THAT(log.lines, ElementsAre("0 6", "1 6", "2 6", "commit"));
}

// Its first two records are taken at the same time, or never.
class MeetingSink : public Sink {
 public:
  explicit MeetingSink(Log& log) : log_(log) {}
  [[nodiscard]] bool is_concurrent() const override { return true; }
  void begin_step(std::int64_t /*step*/, std::uint64_t /*began*/) override {}
  void append(Record record, std::span<const std::byte> /*bytes*/) override {
    meeting_.arrive_and_wait();
    log_.add(record.id.path);
  }
  void note(std::string /*remark*/) override {}
  void flush() override {}
  void end_step(bool whole) override { log_.add(whole ? "commit" : "drop"); }

 private:
  Log& log_;
  std::latch meeting_{2};
};

TEST(WriterThread, WhoWaitsForTheEndOfAStepTakesRecordsOfAConcurrentSink) {
  Log log;
  WriterThread writer(std::make_unique<MeetingSink>(log), no_error);
  writer.begin_step(0, 0);
  writer.append(named("a"), {});
  writer.append(named("b"), {});
  writer.end_step([] { return true; });
  ASSERT_EQ(log.lines.size(), 3U);
  EXPECT_THAT(log.lines, ::testing::IsSupersetOf({"a", "b"}));
  EXPECT_EQ(log.lines.back(), "commit") << "the step ends when all records are taken";
}

TEST(WriterThread, TheFirstErrorIsReportedOnceAndTheRestDiscarded) {
  Log log;
  std::atomic<int> errors{0};
  {
    WriterThread writer(sink(log), [&](std::exception_ptr) { ++errors; });
    writer.append(named("good"), {});
    writer.append(named("bad"), {});
    writer.append(named("bad"), {});
    writer.append(named("later"), {});
    writer.end_step([] { return true; });
  }
  EXPECT_EQ(errors, 1);
  EXPECT_THAT(log.lines, ElementsAre("good 0"));
}

TEST(WriterThread, FilesOfTwoStepsAreWholeWhenTheStepsAreOver) {
  const testing::TemporaryDirectory folder;
  Environment environment;
  environment.directory = folder.path();
  WriterThread writer(make_file_sink(environment, Layout()), no_error, 4096);
  for (std::int64_t step = 0; step < 2; ++step) {
    writer.begin_step(step, 0);
    for (int i = 0; i < 100; ++i) {
      Record record = named("t" + std::to_string(i));
      record.id.step = step;
      record.type = ElementType::kU8;
      record.shape = {1000};
      record.placement = whole(record.shape);
      writer.append(std::move(record), std::vector<std::byte>(1000));
    }
    writer.flush();
    writer.end_step([] { return true; });
    EXPECT_EQ(RankFile(step_file(folder.path(), step, 0)).records().size(), 100U);
  }
}

TEST(WriterThread, AbandonedOneDiscardsWhatIsQueuedAndBlocksNobody) {
  Log log;
  std::promise<void> gate;
  WriterThread writer(sink(log, gate.get_future().share()), no_error, 10);
  writer.begin_step(0, 0);
  writer.append(named("being-written"), std::vector<std::byte>(6));
  std::thread blocked([&] { writer.append(named("too-much"), std::vector<std::byte>(6)); });
  std::thread ending([&] { writer.abandon(); });
  blocked.join();  // what waits for room is let go
  gate.set_value();
  ending.join();
  writer.append(named("late"), std::vector<std::byte>(1000));
  writer.end_step([] { return true; });
  EXPECT_THAT(log.lines, Not(Contains("commit")));
  EXPECT_THAT(log.lines, Not(Contains("late 1000")));
}

TEST(WriterThread, DestructionWritesWhatIsQueued) {
  Log log;
  {
    WriterThread writer(sink(log), no_error);
    writer.append(named("a"), std::vector<std::byte>(1));
  }
  EXPECT_THAT(log.lines, ElementsAre("a 1"));
}

}  // namespace
}  // namespace ttrace
