#include "analysis/causes/where_to_look.h"

#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::noise_row;
using ::testing::Not;
using testing::off;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;
using testing::write_noise_passes;

// One step of a two-module model in the order in which a reference runs it.
const std::vector<std::string> kStep = {"s0/m0/data/tokens/0",
                                        "s0/m0/input/fc1/0",
                                        "s0/m0/output/fc1/0",
                                        "s0/m0/output/act/0",
                                        "s0/m0/output/fc2/0",
                                        "s0/m0/loss/loss/0",
                                        "s0/m0/grad_output/fc2/0",
                                        "s0/m0/param_grad/fc2.weight/0",
                                        "s0/m0/grad_output/fc1/0",
                                        "s0/m0/param_grad/fc1.weight/0",
                                        "s0/m0/grad_input/fc1/0",
                                        "s0/main_grad/fc1.weight/0",
                                        "s0/main_grad/fc3.weight/0",
                                        "s0/scalar/grad_norm/0",
                                        "s0/exp_avg/fc1.weight/0",
                                        "s0/exp_avg_sq/fc1.weight/0",
                                        "s0/master/fc1.weight/0",
                                        "s0/param_next/fc1.weight/0"};

class WhereToLook : public ::testing::Test {
 protected:
  // The report's sentence if `wrong` is the first tensor that diverges.
  std::string when_wrong(const std::string& wrong) {
    bool later = false;
    for (const std::string& id : kStep) {
      reference_.add(0, {id, wavy(6)});
      later = later || id == wrong;
      candidate_.add_everywhere({id, later ? scaled(wavy(6), 3.0) : wavy(6)});
    }
    const Report report = diff(reference_.write(), candidate_.write());
    EXPECT_EQ(to_string(report.tensors.at(report.first_divergence.value()).id), wrong);
    return report.where_to_look;
  }

  // The sentence on a tensor of which nothing else is known.
  static std::string sentence_on(const TensorId& id,
                                 const std::vector<Check>& checks,
                                 bool is_in_reference,
                                 const Trace& candidate) {
    std::vector<TensorVerdict> tensors(1);
    tensors[0].id = id;
    tensors[0].holders = {0, 1};
    tensors[0].checks = checks;
    tensors[0].is_in_reference = is_in_reference;
    return where_to_look(tensors, 0, candidate);
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

// Symptom: when a pipeline of four micro-batches was compared with a reference of one, the report
// said that an annotation was missing.
TEST_F(WhereToLook, DataOfOtherShapesMayBeCutIntoOtherMicrobatches) {
  reference_.add(0, {"s0/m0/data/tokens/0", wavy(8), ElementType::kF32, {4, 2}});
  candidate_.add_everywhere({"s0/m0/data/tokens/0", wavy(2), ElementType::kF32, {1, 2}});
  EXPECT_THAT(diff(reference_.write(), candidate_.write()).where_to_look,
              AllOf(HasSubstr("the same number of micro-batches of the same size"),
                    HasSubstr("the annotation (dims) of tokens")));
}

TEST_F(WhereToLook, AnOutputAccusesItsModuleAndNamesThePredecessor) {
  EXPECT_EQ(when_wrong("s0/m0/output/fc2/0"),
            "check the forward of fc2; the forward record before it, s0/m0/output/act/0, is within "
            "bound");
}

// Symptom: a predecessor that had inherited an error far beyond its bound was said to be within it.
TEST_F(WhereToLook, APredecessorThatInheritedItsErrorIsNotSaidToBeWithinBound) {
  const auto values = wavy(64, 0.1);
  const auto wrong = off(values, 5e-4, 0.9);  // an error of 3e-3 against noise of 1e-3
  TraceBuilder wide(directory_ / "wide", "forced");
  TraceBuilder native(directory_ / "native", "forced");
  const auto add = [&](const std::string& id,
                       const std::vector<double>& candidate,
                       const std::vector<double>& given) {
    reference_.add(0, {id, values});
    candidate_.add_everywhere({id, candidate});
    wide.add(0, {id, given});
    native.add(0, {id, given});
  };
  add("s0/m0/output/a/0", wrong, wrong);
  add("s0/m0/output/b/0", scaled(values, 3.0), values);
  static_cast<void>(reference_.write());
  write_noise_passes(
      directory_ / "reference",
      {noise_row("s0/m0/output/a/0", 1e-3, 1e-4), noise_row("s0/m0/output/b/0", 1e-3, 1e-4)});
  const ForcedTraces forced{wide.write(), native.write()};
  DiffOptions options;
  options.forced = &forced;
  const Report report = diff(Trace::open(directory_ / "reference"), candidate_.write(), options);
  ASSERT_TRUE(report.first_divergence.has_value());
  ASSERT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/b/0");
  EXPECT_EQ(report.where_to_look,
            "check the forward of b; the forward record before it, s0/m0/output/a/0, is beyond its "
            "bound because it inherited an error, but its own operators are right");
}

TEST_F(WhereToLook, AnInputAccusesWhatFeedsIt) {
  EXPECT_EQ(when_wrong("s0/m0/input/fc1/0"),
            "check what feeds fc1; no forward record of its micro-batch comes before it");
}

TEST_F(WhereToLook, AnOutputGradientAccusesTheBackwardOfItsConsumers) {
  EXPECT_EQ(when_wrong("s0/m0/grad_output/fc1/0"),
            "check the backward of the modules that consume the output of fc1; next in forward "
            "order: act, fc2");
}

TEST_F(WhereToLook, TheLastOutputGradientAccusesTheWayToTheLoss) {
  EXPECT_THAT(when_wrong("s0/m0/grad_output/fc2/0"), HasSubstr("no later module was recorded"));
}

TEST_F(WhereToLook, AParameterGradientAccusesTheOwner) {
  EXPECT_EQ(when_wrong("s0/m0/param_grad/fc2.weight/0"),
            "check the backward of fc2 with respect to fc2.weight");
}

TEST_F(WhereToLook, AMainGradientWithCleanParameterGradientsAccusesTheReduction) {
  EXPECT_EQ(when_wrong("s0/main_grad/fc1.weight/0"),
            "check how the gradient of fc1.weight is reduced and accumulated between backward and "
            "optimizer; 1 record of its param_grad is within bound");
}

TEST_F(WhereToLook, AMainGradientWithoutParameterGradientsSaysSo) {
  EXPECT_THAT(when_wrong("s0/main_grad/fc3.weight/0"),
              HasSubstr("no param_grad of it was recorded"));
}

TEST_F(WhereToLook, OptimizerStateNamesWhatGoesIntoIt) {
  EXPECT_THAT(when_wrong("s0/exp_avg/fc1.weight/0"),
              AllOf(HasSubstr("the optimizer's moments"),
                    HasSubstr("1 record of its main_grad is within bound")));
}

TEST_F(WhereToLook, AMasterNamesItsMoments) {
  EXPECT_THAT(when_wrong("s0/master/fc1.weight/0"),
              AllOf(HasSubstr("the optimizer's update"),
                    HasSubstr("record of its exp_avg is within bound"),
                    HasSubstr("record of its exp_avg_sq is within bound")));
}

TEST_F(WhereToLook, AnUpdatedParameterNamesItsMaster) {
  EXPECT_THAT(when_wrong("s0/param_next/fc1.weight/0"),
              AllOf(HasSubstr("copy back"), HasSubstr("record of its master is within bound")));
}

TEST_F(WhereToLook, TokensAccuseTheNumberingOfMicrobatches) {
  EXPECT_THAT(when_wrong("s0/m0/data/tokens/0"), HasSubstr("i * dp + dp_rank"));
}

TEST_F(WhereToLook, TheNumberingIsThatOfTheAxisWithSamples) {
  reference_.manifest.roles = candidate_.manifest.roles = {{"data_parallel", "shard"}};
  candidate_.set_axes({{"shard", 2}});
  EXPECT_THAT(when_wrong("s0/m0/data/tokens/0"), HasSubstr("i * shard + shard_rank"));
}

// A field of a sentence that nobody fills in would show only where the sentence is needed.
TEST_F(WhereToLook, AllSentencesCanBeFilledIn) {
  candidate_.add_everywhere({"s0/m0/output/fc1/0", wavy(6)});
  const Trace candidate = candidate_.write();
  for (const KindTraits& traits : kKindTraits) {
    for (const std::int64_t step : {0, 1}) {
      const TensorId id{.step = step, .kind = traits.kind, .path = "fc1.weight"};
      EXPECT_THAT(sentence_on(id, {}, true, candidate),
                  AllOf(HasSubstr("check "), Not(HasSubstr("{"))));
    }
    for (int i = 1; i <= static_cast<int>(Symptom::kTooCoarse); ++i) {
      const auto symptom = static_cast<Symptom>(i);
      Check check =
          failed(symptom == Symptom::kMissing ? Question::kPresence : Question::kStructure, "");
      check.narrower = symptom;
      for (const bool is_in_reference : {false, true}) {
        EXPECT_THAT(
            sentence_on(
                {.kind = traits.kind, .path = "fc1.weight"}, {check}, is_in_reference, candidate),
            AllOf(HasSubstr("check "), Not(HasSubstr("{"))))
            << traits.name << ", " << name_of(symptom);
      }
    }
  }
}

TEST_F(WhereToLook, ReplicasNameTheAxisOnWhichTheirRanksDiffer) {
  reference_.add(0, {"s0/main_grad/norm.weight/0", wavy(6)});
  candidate_.add(0, {"s0/main_grad/norm.weight/0", wavy(6)});
  candidate_.add(1, {"s0/main_grad/norm.weight/0", scaled(wavy(6), 3)});
  const Report report = diff(reference_.write(), candidate_.write());
  EXPECT_EQ(report.where_to_look,
            "check how ranks reduce the gradient of norm.weight: ranks 0, 1 should hold the same "
            "values; ranks 0 and 1 do not, and their coordinates differ on tp");
}

TEST_F(WhereToLook, AScaleNamesItsOperand) {
  const std::string wrong = "s0/m0/scale/fc1/1";
  reference_.add(0, {wrong, wavy(1)});
  candidate_.add_everywhere({wrong, wavy(1, 2.0)});
  EXPECT_THAT(diff(reference_.write(), candidate_.write()).where_to_look,
              HasSubstr("check how the scale of fc1's weight follows from the largest magnitudes"));
}

TEST_F(WhereToLook, AScaleOfDifferentCopiesNamesItsOperand) {
  const std::string wrong = "s0/m0/scale/fc1/0";
  reference_.add(0, {wrong, wavy(1)});
  candidate_.add(0, {wrong, wavy(1)}).add(1, {wrong, wavy(1, 2.0)});
  EXPECT_THAT(diff(reference_.write(), candidate_.write()).where_to_look,
              HasSubstr("check how ranks share the largest magnitude, from which the scale of "
                        "fc1's input follows: ranks 0, 1 should hold the same values"));
}

TEST_F(WhereToLook, AMissingTensorSaysOnWhichSide) {
  reference_.add(0, {"s0/m0/output/a/0", wavy(6)}).add(0, {"s0/m0/output/b/0", wavy(6)});
  candidate_.add_everywhere({"s0/m0/output/b/0", wavy(6)});
  const Report report = diff(reference_.write(), candidate_.write());
  EXPECT_THAT(report.where_to_look, HasSubstr("whether the candidate runs a"));
}

}  // namespace
}  // namespace ttrace
