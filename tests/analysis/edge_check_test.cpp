#include "analysis/checks/edge_check.h"

#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

const std::string kNorm = "s0/m0/output/norm/0";
const std::string kOther = "s0/m0/output/other/0";
const std::string kInput = "s0/m0/input/linear/0";

// A norm and something else that come before a linear, which takes what the norm returned.
class EdgeCheckTest : public ::testing::Test {
 protected:
  static TraceBuilder program(const std::string& folder, const std::string& pass, int ranks = 1) {
    TraceBuilder builder(folder, pass, ranks);
    builder.add_everywhere({kNorm, wavy(8, 0.2)}).add_everywhere({kOther, wavy(8, 0.9)});
    return builder;
  }
  Trace reference() {
    TraceBuilder builder = program(folder_ / "reference", "reference");
    return builder.edge(0, kInput, kNorm).write();
  }
  TraceBuilder candidate(int ranks = 1) {
    return program(folder_ / "candidate", "candidate", ranks);
  }

  TemporaryDirectory folder_;
};

TEST_F(EdgeCheckTest, TheSameModulesOutputIsRight) {
  TraceBuilder builder = candidate();
  const Report report = diff(reference(), builder.edge(0, kInput, kNorm).write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.edges.edges, 1U);
  EXPECT_EQ(report.edges.checked, 1U);
  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(text.str(), HasSubstr("; 1 of 1 inputs are what the module before returned"));
}

TEST_F(EdgeCheckTest, AnotherModulesOutputIsNamedWithBoth) {
  TraceBuilder builder = candidate(2);
  builder.edge(0, kInput, kNorm).edge(1, kInput, kOther);
  const Report report = diff(reference(), builder.write(), {});
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kInput);
  EXPECT_EQ(found.tier(), Tier::kT0);
  EXPECT_EQ(found.symptom(), Symptom::kSource);
  EXPECT_THAT(found.cause(),
              HasSubstr("is " + kOther + ", but the reference takes " + kNorm + ": 8 of 8"));
  EXPECT_THAT(report.where_to_look, HasSubstr("what lies between linear and the module before it"));
}

// Symptom: a copy that is not what it was copied from had no probable cause.
TEST_F(EdgeCheckTest, AWrongCopyIsExplainedByWhatItWasCopiedFrom) {
  std::vector<double> twice = wavy(8, 0.2);
  for (double& value : twice) {
    value *= 2.0;
  }
  TraceBuilder reference = program(folder_ / "reference", "reference");
  TraceBuilder changed = candidate();
  const Report report =
      diff(reference.edge(0, kInput, kNorm).write(), changed.add(0, {kInput, twice}).write(), {});
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kInput);
  EXPECT_EQ(found.symptom(), Symptom::kSource);
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongFactor);
}

// Symptom: a block of torchtitan's recomputed from its input times 1.01, and the report called it a
// wrong factor between two modules; in the first forward nothing was wrong there.
TEST_F(EdgeCheckTest, AnInputOfASecondForwardThatTheFirstOneDidNotTakeIsNotRecomputed) {
  std::vector<double> drifted = wavy(8, 0.2);
  for (double& value : drifted) {
    value *= 1.01;
  }
  TraceBuilder reference = program(folder_ / "reference", "reference");
  reference.edge(0, kInput, kNorm).edge(0, kInput + "~", kNorm);
  TraceBuilder changed = candidate();
  changed.edge(0, kInput, kNorm).add(0, {kInput + "~", drifted});
  const Report report = diff(reference.write(), changed.write(), {});
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kInput + "~");
  EXPECT_EQ(found.symptom(), Symptom::kRecompute);
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->signature, Signature::kRecompute);
  EXPECT_THAT(report.diagnosis->sentence,
              AllOf(HasSubstr("began with " + kNorm), HasSubstr("a = 1.010")));
  EXPECT_FALSE(report.diagnosis->runner_up);
}

// Symptom: two stages of an interleaved schedule of torch's held each other's layers, and the norm
// behind the wrong message was reported, as if its own operators were wrong, without a cause.
TEST_F(EdgeCheckTest, AMessageWithWhatAnotherLayerReturnedIsNamed) {
  const std::string input = "s0/m0/input/decoder.layers.2/0";
  const std::string before = "s0/m0/output/decoder.layers.1/0";
  const auto program = [&](const std::string& folder, const std::string& pass) {
    TraceBuilder builder(folder_ / folder, pass);
    builder.add(0, {"s0/m0/output/decoder.layers.0/0", wavy(8, 0.1)})
        .add(0, {before, wavy(8, 0.2)});
    return builder;
  };
  const Trace reference = program("reference", "reference").edge(0, input, before).write();
  for (const double phase : {0.2, 0.1}) {
    TraceBuilder changed = program(phase == 0.2 ? "right" : "swapped", "candidate");
    changed.add(0, {"s0/m0/sent/to_stage_2/0", wavy(8, phase)})
        .add(0, {"s0/m0/received/to_stage_2/0", wavy(8, phase)})
        .edge(0, input, "s0/m0/received/to_stage_2/0");
    const Report report = diff(reference, changed.write(), {});
    EXPECT_EQ(report.edges.checked, 1U);
    ASSERT_EQ(report.diverged(), phase != 0.2);
    if (report.diverged()) {
      EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), input);
      ASSERT_TRUE(report.diagnosis);
      EXPECT_EQ(report.diagnosis->signature, Signature::kWrongLayer);
      EXPECT_THAT(report.diagnosis->sentence,
                  HasSubstr("which is s0/m0/output/decoder.layers.0/0 and not " + before));
    }
  }
}

// Symptom: a gradient that was wrong in the first of two steps was reported behind the second
// step's parameters: orders count from the beginning of each step.
TEST_F(EdgeCheckTest, StepsStayInTheirOrder) {
  const std::string gradient = "s0/main_grad/linear.weight/0";
  const std::string parameter = "s1/param/linear.weight/0";
  const auto write = [&](const std::string& pass, double error) {
    TraceBuilder builder = program(folder_ / pass, pass);
    builder.edge(0, kInput, kNorm);
    for (const std::string& id : {gradient, parameter}) {
      builder.add(0, {id, testing::off(wavy(8, 0.4), error, 1.0)});
    }
    return builder.write();
  };
  const Report report = diff(write("reference", 0.0), write("candidate", 0.5), {});
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), gradient);
  EXPECT_EQ(to_string(report.tensors.back().id), parameter);
}

TEST_F(EdgeCheckTest, TwoNamesOfOneValueAreTheSameSource) {
  TraceBuilder builder(folder_ / "candidate", "candidate");
  builder.add(0, {kNorm, wavy(8, 0.2)}).add(0, {kOther, wavy(8, 0.2)});
  TraceBuilder other(folder_ / "reference", "reference");
  other.add(0, {kNorm, wavy(8, 0.2)}).add(0, {kOther, wavy(8, 0.2)}).edge(0, kInput, kNorm);
  const Report report = diff(other.write(), builder.edge(0, kInput, kOther).write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.edges.checked, 1U);
}

// Symptom: a clean DTensor program in BF16 diverged: "its source is n1, but the reference takes
// n5". n5 sums n1 over the ranks, which does nothing on one device, so that both are one memory
// there.
TEST_F(EdgeCheckTest, ASumOfWhatTheReferenceTakesIsTheSameSourceDespiteItsRounding) {
  const std::vector<double> addends[] = {wavy(8, 0.3), wavy(8, 0.4)};
  std::vector<double> sum(8);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = addends[0][i] + addends[1][i];  // which F32 rounds
  }
  const auto has_other_source = [&](const std::string& name, const std::vector<double>& other) {
    TraceBuilder candidate(folder_ / name, "candidate", 2);
    for (int rank = 0; rank < 2; ++rank) {
      Placement placement = whole(std::vector<std::int64_t>{8});
      placement.partial_index = rank;
      placement.partial_count = 2;
      candidate.add(rank, {kOther, addends[rank], ElementType::kF32, {8}, placement})
          .edge(rank, kInput, kOther);
    }
    candidate.add_everywhere({kNorm, sum});
    TraceBuilder reference(folder_ / (name + "-reference"), "reference");
    reference.add(0, {kNorm, sum}).add(0, {kOther, other}).edge(0, kInput, kNorm);
    const Report report = diff(reference.write(), candidate.write(), {});
    EXPECT_EQ(report.edges.checked, 1U);
    return std::ranges::any_of(report.tensors, [](const TensorVerdict& tensor) {
      return tensor.fails(Question::kSource);
    });
  };
  EXPECT_FALSE(has_other_source("addends", sum));
  EXPECT_TRUE(has_other_source("another", wavy(8, 0.9))) << "the reference has two values";
}

TEST_F(EdgeCheckTest, ACopyBitForBitIsTheOutput) {
  TraceBuilder builder = candidate();
  const Report report = diff(reference(), builder.add(0, {kInput, wavy(8, 0.2)}).write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().missing_in_reference, 0U);
  EXPECT_EQ(report.edges.checked, 1U);
}

// Symptom: a clean run of torchtitan under tensor parallelism had 26 gradients "missing in the
// reference": the program gathers what a norm returned before the next module takes it, so that the
// copy has a gradient of its own.
TEST_F(EdgeCheckTest, TheGradientOfACopyIsAnAddendOfItsSourcesGradient) {
  TraceBuilder builder = candidate();
  builder.add(0, {kInput, wavy(8, 0.2)}).add(0, {"s0/m0/grad_input/linear/0", wavy(8, 0.7)});
  const Report report = diff(reference(), builder.write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().not_judged, 1U);
}

TEST_F(EdgeCheckTest, AGradientOfAnInputThatIsNoCopyIsMissingInTheReference) {
  TraceBuilder builder = candidate();
  builder.edge(0, kInput, kNorm).add(0, {"s0/m0/grad_input/linear/0", wavy(8, 0.7)});
  const Report report = diff(reference(), builder.write(), {});
  EXPECT_EQ(report.counts().missing_in_reference, 1U);
}

TEST_F(EdgeCheckTest, ACopyThatIsNoneIsFoundHoweverLittleItDiffers) {
  std::vector<double> values = wavy(8, 0.2);
  values[3] *= 1.0 + 1e-6;
  TraceBuilder builder = candidate();
  const Report report = diff(reference(), builder.add(0, {kInput, values}).write(), {});
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kInput);
  EXPECT_EQ(found.symptom(), Symptom::kSource);
  EXPECT_THAT(found.cause(),
              HasSubstr("it is not equal to its source " + kNorm + " in the same run: 1 of 8"));
}

TEST_F(EdgeCheckTest, WhatAStageReceivedIsTheOutputThatAnotherOneSent) {
  TraceBuilder builder = candidate(2);
  builder.edge(1, kInput, "s0/m0/received/norm/0");
  const Report report = diff(reference(), builder.write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.edges.checked, 1U);
}

TEST_F(EdgeCheckTest, AModuleThatTheCandidateLacksIsNotChecked) {
  TraceBuilder builder = candidate();
  const Report report = diff(reference(), builder.write(), {});
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.edges.edges, 1U);
  EXPECT_EQ(report.edges.checked, 0U);
}

// Seen where every layer of a recomputed chunk read the chunk's input: no cause was named.
TEST_F(EdgeCheckTest, AnInputOfTheLayerBeforeIsDiagnosed) {
  const auto program = [&](const std::string& name, const std::string& second) {
    TraceBuilder builder(folder_ / name, name);
    builder.add(0, {kNorm, wavy(8, 0.2)}).add(0, {"s0/m0/output/layers.0/0", wavy(8, 0.9)});
    builder.edge(0, "s0/m0/input/layers.0/0", kNorm).edge(0, "s0/m0/input/layers.1/0", second);
    return builder.write();
  };
  const Trace expected = program("reference", "s0/m0/output/layers.0/0");
  const Report report = diff(expected, program("candidate", kNorm), {});
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongLayer);
  EXPECT_THAT(report.diagnosis->sentence,
              HasSubstr("it takes " + kNorm + ", which is the input of layers.0"));
}

}  // namespace
}  // namespace ttrace
