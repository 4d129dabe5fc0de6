#include "analysis/timeline/timeline.h"

#include "analysis/timeline/lanes.h"
#include "analysis/timeline/module_spans.h"
#include "support/temporary_directory.h"
#include "trace/base/durable_file.h"
#include "trace_builder.h"

#include <ttrace/collective_call.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kNine = 1'790'000'000'000'000'000;  // 2026, in ns

Tensor at(const std::string& id, std::uint64_t time) {
  Tensor tensor{id, {1.0, 2.0}};
  tensor.time = time;
  return tensor;
}

// "forward a 1-5", with a ? after an end that no record shows.
std::vector<std::string> spans_of(const RankFile& file) {
  const std::map<ModuleRun, std::string> names{{ModuleRun::kForward, "forward"},
                                               {ModuleRun::kAgain, "again"},
                                               {ModuleRun::kBackward, "backward"}};
  std::vector<std::string> texts;
  for (const ModuleSpan& span : module_spans(file, times_of(file, true))) {
    texts.push_back(names.at(span.run) + " " + span.module +
                    (span.call == 0 ? "" : "#" + std::to_string(span.call)) + " " +
                    std::to_string(span.begin) + (span.shows_begin ? "" : "?") + "-" +
                    std::to_string(span.end) + (span.shows_end ? "" : "?"));
  }
  return texts;
}

class TimelineTest : public ::testing::Test {
 protected:
  // One rank with times.
  RankFile written(const std::vector<Tensor>& tensors) {
    builder_.began(0, kNine);
    for (const Tensor& tensor : tensors) {
      builder_.add(0, tensor);
    }
    return std::move(builder_.write().steps().front().ranks.front());
  }

  // What `ttrace timeline` writes of a trace.
  Json events_of(const Trace& trace, const JudgedIds& judged = {}) {
    const std::string file = folder_ / "timeline.json";
    TraceEventWriter writer(file, Json::object());
    counts_ = add_timeline("candidate", trace, judged, writer);
    EXPECT_FALSE(std::filesystem::exists(file));
    writer.commit();
    return Json::parse(read_text_file(file)).at("traceEvents");
  }

  static std::vector<std::string> names(const Json& events, const std::string& phase) {
    std::vector<std::string> found;
    for (const Json& event : events) {
      if (event.at("ph") == phase) {
        found.push_back(event.at("name").get<std::string>());
      }
    }
    return found;
  }

  // The first event of that name. Fails the test where there is none.
  static Json find(const Json& events, const std::string& name) {
    for (const Json& event : events) {
      if (event.at("name") == name) {
        return event;
      }
    }
    ADD_FAILURE() << "no event " << name;
    return {};
  }

  const TemporaryDirectory folder_;
  TraceBuilder builder_{folder_ / "candidate", "candidate"};
  TimelineCounts counts_;
};

TEST_F(TimelineTest, AForwardLastsFromTheFirstInputToTheLastOutput) {
  EXPECT_THAT(spans_of(written({at("s0/m0/input/a/0", 10),
                                at("s0/m0/input/a/1", 11),
                                at("s0/m0/output/a/0", 20),
                                at("s0/m0/output/a/1", 25)})),
              ElementsAre("forward a 10-25"));
}

TEST_F(TimelineTest, AnInputThatIsAnotherModulesOutputBeginsAForward) {
  builder_.edge(0, "s0/m0/input/b/0", "s0/m0/output/a/0", 22);
  EXPECT_THAT(
      spans_of(written(
          {at("s0/m0/input/a/0", 10), at("s0/m0/output/a/0", 20), at("s0/m0/output/b/0", 30)})),
      ElementsAre("forward a 10-20", "forward b 22-30"));
}

TEST_F(TimelineTest, AModuleBeginsWithWhatLiesInsideItAndALeafAfterTheRecordBefore) {
  EXPECT_THAT(spans_of(written({at("s0/m0/data/tokens/0", 5),
                                at("s0/m0/output/a.b/0", 20),
                                at("s0/m0/output/a/0", 25)})),
              ElementsAre("forward a 5-25", "forward a.b 5?-20"));
}

// Symptom: an embedding whose forward sums over ranks lasted a microsecond, because its own
// collective was the record before it.
TEST_F(TimelineTest, AModulesOwnCollectivesAreNotTheRecordBeforeIt) {
  EXPECT_THAT(spans_of(written({at("s0/m0/data/tokens/0", 5),
                                at("s0/collective_input/tp-0.0/0", 10),
                                at("s0/collective_output/tp-0.0/0", 19),
                                at("s0/m0/output/a/0", 20)})),
              ElementsAre("forward a 5?-20"));
}

TEST_F(TimelineTest, CallsAndMicrobatchesAreApart) {
  EXPECT_THAT(spans_of(written({at("s0/m0/input/a/0", 10),
                                at("s0/m0/output/a.b/0", 14),
                                at("s0/m0/output/a/0", 15),
                                at("s0/m0/output/a.b/0#1", 29),
                                at("s0/m0/output/a/0#1", 30),
                                at("s0/m1/input/a/0", 40),
                                at("s0/m1/output/a/0", 45)})),
              UnorderedElementsAre("forward a 10-15",
                                   "forward a#1 15-30",
                                   "forward a 40-45",
                                   "forward a.b 10?-14",
                                   "forward a.b#1 15?-29"));
}

TEST_F(TimelineTest, ABackwardLastsFromTheGradientOfTheOutputToThoseOfInputsAndParameters) {
  EXPECT_THAT(spans_of(written({at("s0/m0/grad_output/a/0", 10),
                                at("s0/m0/param_grad/a.weight/0", 18),
                                at("s0/m0/grad_input/a/0", 16)})),
              ElementsAre("backward a 10-18"));
}

TEST_F(TimelineTest, ABackwardEndsWithTheGradientOfWhatTheModuleTook) {
  builder_.edge(0, "s0/m0/input/b/0", "s0/m0/output/a/0", 3);
  EXPECT_THAT(spans_of(written({at("s0/m0/input/a/0", 1),
                                at("s0/m0/output/a/0", 2),
                                at("s0/m0/output/b/0", 4),
                                at("s0/m0/grad_output/b/0", 10),
                                at("s0/m0/grad_output/a/0", 20),
                                at("s0/m0/loss/loss/0", 31)})),
              UnorderedElementsAre(
                  "forward a 1-2", "forward b 3-4", "backward b 10-20", "backward a 20-31?"));
}

TEST_F(TimelineTest, ABackwardHoldsThoseInsideIt) {
  EXPECT_THAT(spans_of(written({at("s0/m0/grad_output/a/0", 10),
                                at("s0/m0/grad_output/a.b/0", 12),
                                at("s0/m0/param_grad/a.b.weight/0", 30)})),
              ElementsAre("backward a 10-30", "backward a.b 12-30"));
}

TEST_F(TimelineTest, ARecomputedForwardIsOneOfItsOwn) {
  EXPECT_THAT(spans_of(written({at("s0/m0/input/a/0", 1),
                                at("s0/m0/output/a/0", 2),
                                at("s0/m0/input/a/0~", 11),
                                at("s0/m0/output/a/0~", 12)})),
              ElementsAre("forward a 1-2", "again a 11-12"));
}

TEST(Lanes, ASliceStandsBelowAnotherOnlyWhereItBelongsThere) {
  EXPECT_THAT(lanes_of({{0, 10, "a"}, {2, 4, "a.b"}, {4, 10, "a.c"}, {10, 20, "d"}}),
              ElementsAre(0, 0, 0, 0));
  // Overlapping, and inside in time alone.
  EXPECT_THAT(lanes_of({{0, 10, "a"}, {5, 15, "a.b"}, {6, 8, "d"}}), ElementsAre(0, 1, 2));
  // Of two that begin together, the outer one is the outer one, whatever comes first.
  EXPECT_THAT(lanes_of({{0, 5, "a.b"}, {0, 5, "a"}, {0, 9, "a.b"}}), ElementsAre(1, 1, 0));
  EXPECT_THAT(lanes_of({{0, 5, ""}, {1, 2, ""}}), ElementsAre(0, 1));
}

TEST_F(TimelineTest, RanksOfOneMachineLieNextToEachOther) {
  TraceBuilder two(folder_ / "two", "candidate", 2);
  two.began(0, kNine).began(1, kNine + 2500);
  two.add_everywhere(at("s0/m0/input/a/0", 1000)).add_everywhere(at("s0/m0/output/a/0", 4007));
  const Json events = events_of(two.write());
  std::vector<double> begins;
  for (const Json& event : events) {
    if (event.at("ph") == "X") {
      begins.push_back(event.at("ts").get<double>());
      EXPECT_EQ(event.at("dur"), 3.007);
    }
  }
  EXPECT_THAT(begins, ElementsAre(1.0, 3.5));
  EXPECT_EQ(counts_.ranks, 2U);
  EXPECT_EQ(counts_.slices, 2U);
  EXPECT_EQ(counts_.records, 4U);
}

TEST_F(TimelineTest, ProcessesHaveTheCoordinatesOfTheirRanks) {
  TraceBuilder four(folder_ / "four", "candidate", 4);
  four.set_axes({{"tp", 2}, {"dp", 2}});
  four.add_everywhere({"s0/m0/output/a/0", {1.0}});
  std::vector<std::string> processes;
  for (const Json& event : events_of(four.write())) {
    if (event.at("name") == "process_name") {
      processes.push_back(event.at("args").at("name").get<std::string>());
    }
  }
  EXPECT_THAT(processes,
              ElementsAre("candidate rank 0 (tp 0, dp 0)",
                          "candidate rank 1 (tp 1, dp 0)",
                          "candidate rank 2 (tp 0, dp 1)",
                          "candidate rank 3 (tp 1, dp 1)"));
}

TEST_F(TimelineTest, ARecordSaysWhatItIs) {
  Tensor tensor{"s0/m0/output/a/0", {1, 2, 3, 4, 5, 6}, ElementType::kBF16, {3, 2}};
  builder_.add(0, tensor);
  const Json event = find(events_of(builder_.write()), "s0/m0/output/a/0");
  EXPECT_EQ(event.at("ph"), "i");
  EXPECT_EQ(event.at("cat"), "output");
  EXPECT_EQ(event.at("args").at("shape"), "3x2");
  EXPECT_EQ(event.at("args").at("type"), "bf16");
  EXPECT_EQ(event.at("args").at("bytes"), 12);
}

// A trace of an earlier version.
TEST_F(TimelineTest, WithoutTimesTheOrderIsShown) {
  builder_.add(0, {"s0/m0/input/a/0", {1.0}}).add(0, {"s0/m0/output/a/0", {1.0}});
  builder_.add(0, {"s1/m0/input/a/0", {1.0}}).add(0, {"s1/m0/output/a/0", {1.0}});
  const Trace trace = builder_.write();
  EXPECT_FALSE(has_times(trace));
  std::vector<double> begins;
  for (const Json& event : events_of(trace)) {
    if (event.at("ph") == "X") {
      begins.push_back(event.at("ts").get<double>());
      EXPECT_EQ(event.at("dur"), 1.0);
    }
  }
  EXPECT_THAT(begins, ElementsAre(0.0, 2.0));  // a microsecond per record, step after step
}

TEST_F(TimelineTest, WhatDivergedIsMarked) {
  JudgedIds judged;
  judged.first_divergence = "s0/m0/output/a/0";
  judged.by_id["s0/m0/output/a/0"] = {"diverged", true, "missing reduction"};
  judged.by_id["s0/m0/output/b/0"] = {"inherited", false, ""};
  builder_.began(0, kNine);
  builder_.add(0, at("s0/m0/output/a/0", 10)).add(0, at("s0/m0/output/b/0", 20));
  const Json events = events_of(builder_.write(), judged);
  const Json mark = find(events, "first divergence: s0/m0/output/a/0");
  EXPECT_EQ(mark.at("args").at("verdict"), "diverged");
  EXPECT_EQ(mark.at("args").at("cause"), "missing reduction");
  EXPECT_EQ(find(events, "a").at("cat"), "forward,diverged");
  EXPECT_EQ(find(events, "b").at("cat"), "forward");
  EXPECT_EQ(find(events, "s0/m0/output/b/0").at("args").at("verdict"), "inherited");
  EXPECT_EQ(counts_.marks, 1U);
}

TEST_F(TimelineTest, ACollectiveLastsFromWhatTheRankGaveToWhatItGot) {
  const std::string text = to_text(CollectiveCall{.size = 2, .module = "a"});
  Tensor call{"s0/collective_input/tp-0.4/1", {}, ElementType::kU8};
  call.values.assign(text.begin(), text.end());
  call.time = 11;
  builder_.began(0, kNine);
  builder_.add(0, at("s0/collective_input/tp-0.4/0", 10)).add(0, call);
  builder_.add(0, at("s0/collective_output/tp-0.4/0", 90));
  const Json event = find(events_of(builder_.write()), "all-reduce (sum) tp-0.4");
  EXPECT_EQ(event.at("ts"), 0.010);
  EXPECT_EQ(event.at("dur"), 0.080);
  EXPECT_EQ(event.at("args").at("module"), "a");
}

TEST_F(TimelineTest, AnUnfinishedFileLeavesNothing) {
  const std::string file = folder_ / "timeline.json";
  { const TraceEventWriter writer(file, Json::object()); }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
}

TEST_F(TimelineTest, ForeignReportsAreRefused) {
  const std::string report = folder_ / "report.json";
  for (const std::string text :
       {"{", "[]", R"({"tensors":[{}]})", R"({"first_divergence":null})"}) {
    write_text_file(report, text);
    try {
      static_cast<void>(read_judged_ids(report));
      ADD_FAILURE() << text;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(), HasSubstr(report + ": this is no report of ttrace"));
    }
  }
  write_text_file(report,
                  R"({"verdict":"clean","first_divergence":null,"counts":{"tensors":[1]},"tensors":[
{"id":"x","status":"within","finding":false,"cause":"","checks":[{"id":7}]}]})");
  const JudgedIds judged = read_judged_ids(report);
  EXPECT_EQ(judged.first_divergence, "");
  EXPECT_EQ(judged.by_id.at("x").status, "within");
}

}  // namespace
}  // namespace ttrace::testing
