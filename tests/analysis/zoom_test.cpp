// Which operator inside a module is the first wrong one.
#include "analysis/diff.h"
#include "analysis/infer/settle.h"
#include "analysis/zoom/locate.h"
#include "analysis/zoom/operator_alignment.h"
#include "analysis/zoom/target.h"
#include "analysis/zoom/zoomed_pair.h"
#include "support/temporary_directory.h"
#include "trace/base/zoom_target.h"
#include "trace/merge/operator_call.h"
#include "trace_builder.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::scaled;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

using Numbers = std::vector<double>;
constexpr std::nullopt_t kNobody = std::nullopt;

ListedOperator listed(const std::string& name,
                      const std::vector<std::int64_t>& shape,
                      const std::string& source = "") {
  ListedOperator result;
  result.call.name = "aten::" + name;
  result.call.source = source;
  result.call.results = {parse_tensor_id("s0/m0/operator/a." + name + "/0")};
  result.base = name;
  result.shape = shape;
  return result;
}

TEST(OperatorAlignment, LeavesAnExtraOperatorAlone) {
  const OperatorSequence reference{
      0, {listed("mm", {4, 8}), listed("mul", {4, 8}, "a.py:2"), listed("exp", {4, 8})}};
  const OperatorSequence candidate{0,
                                   {listed("mm", {4, 8}),
                                    listed("mul", {4, 8}, "a.py:1"),
                                    listed("mul", {4, 8}, "a.py:2"),
                                    listed("exp", {4, 8})}};
  EXPECT_THAT(align(reference, candidate), ElementsAre(0U, kNobody, 1U, 2U));
}

TEST(OperatorAlignment, PairsWholeTensorsWithCutOnesRatherThanWithOthers) {
  const OperatorSequence reference{0, {listed("mm", {4, 8}), listed("mm", {8, 3})}};
  const OperatorSequence candidate{1, {listed("mm", {8, 3})}};
  EXPECT_THAT(align(reference, candidate), ElementsAre(1U));
  const OperatorSequence cut{1, {listed("mm", {4, 4}), listed("mm", {8, 3})}};
  EXPECT_THAT(align(reference, cut), ElementsAre(0U, 1U));
}

TEST(OperatorAlignment, PairsBackwardOperatorsOfTheSameForwardOperator) {
  const auto backward = [](std::size_t forward) {
    ListedOperator result = listed("mul", {4, 8});
    result.call.backward = true;
    result.call.forward = forward;
    return result;
  };
  // The candidate's graph runs in another order.
  const OperatorSequence reference{
      0, {listed("mul", {4, 8}, "1"), listed("exp", {4, 8}), backward(1), backward(0)}};
  const OperatorSequence candidate{
      0, {listed("mul", {4, 8}, "1"), listed("exp", {4, 8}), backward(0), backward(1)}};
  EXPECT_THAT(align(reference, candidate), ElementsAre(0U, 1U, 3U, 2U));
}

TEST(ZoomTargets, PrintAndParse) {
  const ZoomTarget target{2, 3, {"layers.0.mlp", "layers.1"}};
  EXPECT_EQ(to_string(target), "s2/m3/layers.0.mlp,layers.1");
  EXPECT_EQ(parse_zoom_target(to_string(target)), target);
  EXPECT_EQ(parse_zoom_target("s0/outside"), (ZoomTarget{0, kNoMicrobatch, {"outside"}}));
  for (const char* const text : {"", "s0", "s0/", "m0/a", "s0/m0/a..b", "s0/m0"}) {
    EXPECT_THROW(static_cast<void>(parse_zoom_target(text)), UsageError) << text;
  }
}

TEST(ZoomTargets, NameThePathOfAnOperator) {
  EXPECT_EQ(operator_path("layers.0", "aten::add_"), "layers.0.add");
  EXPECT_EQ(operator_path("layers.0", "_c10d_functional::all_reduce"), "layers.0.all_reduce");
  EXPECT_EQ(operator_path("a", "my.lib::odd name"), "a.odd_name");
}

TEST(OperatorCalls, SurviveTheirText) {
  OperatorCall first{.name = "aten::mm", .module = "a", .source = "a.py:1", .reads_outside = true};
  first.results = {parse_tensor_id("s0/m0/operator/a.mm/0")};
  const OperatorCall second{
      .name = "aten::mm", .backward = true, .forward = 0, .made_by = {0}, .results = {}};
  const std::vector<OperatorCall> calls{first, second};
  EXPECT_EQ(parse_operator_calls(to_text(calls)), calls);
  EXPECT_THROW(static_cast<void>(parse_operator_calls("[{}]")), FormatError);
}

// A module of two programs, the second of which runs on two ranks.
class ZoomTest : public ::testing::Test {
 protected:
  // Lists an operator of one rank, and records its result.
  std::size_t run(TraceBuilder& trace,
                  std::vector<OperatorCall>& calls,
                  int rank,
                  const std::string& name,
                  const std::vector<std::size_t>& made_by,
                  const Numbers& values) {
    OperatorCall call{
        .name = name, .module = "a", .source = "a.py:" + std::to_string(calls.size())};
    call.made_by = made_by;
    call.reads_outside = made_by.empty() && name != "aten::arange";
    call.communicates = name.starts_with("c10d::");
    TensorId id = parse_tensor_id("s0/m0/operator/" + operator_path("a", name) + "/0");
    for (const OperatorCall& earlier : calls) {
      id.call += !earlier.results.empty() && earlier.results.front().path == id.path ? 1 : 0;
    }
    call.results = {id};
    const auto rows = static_cast<std::int64_t>(values.size() / 4);
    trace.add(rank, {to_string(id), values, ElementType::kF32, {rows, 4}, {}, true});
    calls.push_back(call);
    return calls.size() - 1;
  }
  std::size_t reference(const std::string& name,
                        const std::vector<std::size_t>& made_by,
                        const Numbers& values) {
    return run(reference_, reference_calls_, 0, name, made_by, values);
  }
  void candidate(const std::string& name,
                 const std::vector<std::size_t>& made_by,
                 const Numbers& first,
                 const Numbers& second) {
    run(candidate_, candidate_calls_[0], 0, name, made_by, first);
    run(candidate_, candidate_calls_[1], 1, name, made_by, second);
  }
  void candidate(const std::string& name,
                 const std::vector<std::size_t>& made_by,
                 const Numbers& values) {
    candidate(name, made_by, values, values);
  }

  static void list(TraceBuilder& trace, int rank, const std::vector<OperatorCall>& calls) {
    const std::string text = to_text(calls);
    trace.add(rank, {"s0/operators/zoom/0", Numbers(text.begin(), text.end()), ElementType::kU8});
  }
  ZoomReport zoom() {
    list(reference_, 0, reference_calls_);
    list(candidate_, 0, candidate_calls_[0]);
    list(candidate_, 1, candidate_calls_[1]);
    Trace left = reference_.write();
    Trace right = candidate_.write();
    const ZoomedPair pair = align_operators(left, right);
    static_cast<void>(settle_placements(
        left, right, 1, [&](const TensorId& id) { return pair.is_summed_later(id); }));
    return locate(pair, diff(left, right));
  }

  testing::TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  std::vector<OperatorCall> reference_calls_;
  std::vector<OperatorCall> candidate_calls_[2];
  const Numbers x_ = wavy(32);
  const Numbers y_ = wavy(32, 1.0);
  const Numbers z_ = wavy(32, 2.0);
};

TEST_F(ZoomTest, NamesTheFirstOperatorWithAWrongResult) {
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  reference("aten::sin", {1}, z_);
  candidate("aten::mm", {}, x_);
  candidate("aten::exp", {0}, scaled(y_, 1.5));
  candidate("aten::sin", {1}, scaled(z_, 1.5));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::exp");
  EXPECT_EQ(report.first->source, "a.py:1");
  EXPECT_EQ(report.fault, OperatorFault::kResult);
  ASSERT_EQ(report.clean_inputs.size(), 1U);
  EXPECT_EQ(report.clean_inputs.front().name, "aten::mm");
  EXPECT_TRUE(report.wrong_inputs.empty());
}

TEST_F(ZoomTest, NamesAnOperatorThatOnlyTheCandidateRuns) {
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  candidate("aten::mm", {}, x_);
  candidate("aten::mul", {0}, scaled(x_, 2.0));
  candidate("aten::exp", {1}, scaled(y_, 2.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::mul");
  EXPECT_EQ(report.fault, OperatorFault::kOnlyInCandidate);
  EXPECT_EQ(report.result->name, "aten::exp");
}

TEST_F(ZoomTest, NamesAnOperatorThatOnlyTheReferenceRuns) {
  reference("aten::mm", {}, x_);
  reference("aten::mul", {0}, scaled(x_, 2.0));
  reference("aten::exp", {1}, y_);
  candidate("aten::mm", {}, x_);
  candidate("aten::exp", {0}, scaled(y_, 0.5));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::mul");
  EXPECT_EQ(report.fault, OperatorFault::kOnlyInReference);
}

// Symptom: of a missing `x / x.sum()` the sum was named, although nothing but the division reads
// it.
TEST_F(ZoomTest, NamesTheMissingOperatorThroughWhichAllValuesGo) {
  reference("aten::mm", {}, x_);
  reference("aten::sum", {0}, z_);
  reference("aten::div", {0, 1}, scaled(x_, 2.0));
  reference("aten::exp", {2}, y_);
  candidate("aten::mm", {}, x_);
  candidate("aten::exp", {0}, scaled(y_, 0.5));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::div");
  EXPECT_EQ(report.fault, OperatorFault::kOnlyInReference);
}

// Symptom: of an extra operator of rank 1 nothing was said, and the next one was accused.
TEST_F(ZoomTest, NamesAnOperatorThatOneRankAloneRuns) {
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  run(candidate_, candidate_calls_[0], 0, "aten::mm", {}, x_);
  run(candidate_, candidate_calls_[0], 0, "aten::exp", {0}, y_);
  run(candidate_, candidate_calls_[1], 1, "aten::mm", {}, x_);
  run(candidate_, candidate_calls_[1], 1, "aten::mul", {0}, scaled(x_, 2.0));
  run(candidate_, candidate_calls_[1], 1, "aten::exp", {1}, scaled(y_, 2.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::mul");
  EXPECT_EQ(report.fault, OperatorFault::kOnlyInCandidate);
}

// Symptom: positions that every rank counts from zero, and moves afterwards, were accused.
TEST_F(ZoomTest, AcceptsNumbersThatEveryRankCountsForItself) {
  const Numbers half(y_.begin(), y_.begin() + 16);
  const Numbers first(x_.begin(), x_.begin() + 16);
  const Numbers second(x_.begin() + 16, x_.end());
  reference("aten::arange", {}, y_);
  reference("aten::exp", {0}, x_);
  candidate("aten::arange", {}, half, half);
  candidate("aten::exp", {0}, first, second);
  EXPECT_THAT(zoom().problem, HasSubstr("round-off explains every operator"));
}

TEST_F(ZoomTest, NamesACopyThatRearrangesWhatItReads) {
  Numbers turned = x_;
  std::reverse(turned.begin(), turned.end());
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  candidate("aten::mm", {}, x_);
  candidate("aten::clone", {0}, turned);
  candidate("aten::exp", {1}, scaled(y_, 2.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::clone");
}

// Addends are not wrong where a sum over ranks follows.
TEST_F(ZoomTest, AcceptsAddendsThatAreSummedLater) {
  Numbers rest = x_;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] -= z_[i];
  }
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  candidate("aten::mm", {}, z_, rest);
  candidate("c10d::allreduce_", {0}, x_);
  candidate("aten::exp", {1}, scaled(y_, 2.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::exp");
}

TEST_F(ZoomTest, NamesTheOperatorWhoseAddendsNobodySums) {
  Numbers rest = x_;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] -= z_[i];
  }
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  candidate("aten::mm", {}, z_, rest);
  candidate("aten::exp", {0}, wavy(32, 3.0), wavy(32, 4.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "aten::mm");
}

TEST_F(ZoomTest, NamesASumOverRanksThatIsWrong) {
  Numbers rest = x_;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    rest[i] -= z_[i];
  }
  reference("aten::mm", {}, x_);
  reference("aten::exp", {0}, y_);
  candidate("aten::mm", {}, z_, rest);
  candidate("c10d::allreduce_", {0}, scaled(x_, 0.5));
  candidate("aten::exp", {1}, scaled(y_, 2.0));
  const ZoomReport report = zoom();
  ASSERT_TRUE(report.first) << report.problem;
  EXPECT_EQ(report.first->name, "c10d::allreduce_");
  EXPECT_EQ(report.fault, OperatorFault::kCommunication);
}

TEST_F(ZoomTest, SaysWhereEveryOperatorIsRight) {
  reference("aten::mm", {}, x_);
  candidate("aten::mm", {}, x_);
  const ZoomReport report = zoom();
  EXPECT_FALSE(report.first);
  EXPECT_THAT(report.problem, HasSubstr("round-off explains every operator"));
}

TEST(ZoomedModules, FollowFromWhatTheTensorIs) {
  const testing::TemporaryDirectory directory;
  TraceBuilder builder(directory / "reference", "reference");
  for (const char* const id : {"s0/m0/output/layers.0.mlp/0",
                               "s0/m0/output/layers.0/0",
                               "s0/m0/output/layers.1/0",
                               "s0/m0/output/model/0"}) {
    builder.add(0, {id, wavy(4)});
  }
  builder.edge(0, "s0/m0/input/layers.1/0", "s0/m0/output/layers.0/0");
  const Trace reference = builder.write();
  const auto modules = [&](const char* id) {
    return zoom_target(parse_tensor_id(id), reference).modules;
  };
  EXPECT_THAT(modules("s0/m0/output/layers.0.mlp/0"), ElementsAre("layers.0.mlp"));
  EXPECT_THAT(modules("s0/m0/input/layers.0.mlp/0"), ElementsAre("layers.0"));
  EXPECT_THAT(modules("s0/m0/grad_input/layers.0/0"), ElementsAre("layers.0"));
  EXPECT_THAT(modules("s0/m0/grad_output/layers.0/0"), ElementsAre("outside", "layers.1"));
  EXPECT_THAT(modules("s0/m0/param_grad/layers.0.mlp.weight/0"), ElementsAre("layers.0.mlp"));
  EXPECT_THAT(modules("s0/m0/output/model/0"), ElementsAre("outside"));
  EXPECT_THAT(modules("s0/m0/loss/loss/0"), ElementsAre("outside"));
  EXPECT_THROW(static_cast<void>(modules("s0/main_grad/layers.0.mlp.weight/0")), UsageError);
}

}  // namespace
}  // namespace ttrace
