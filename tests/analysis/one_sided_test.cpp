// Records that one side alone has because the value is an alias, or needs no gradient, on the
// other.
#include "analysis/checks/one_sided.h"

#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

const std::string kNorm = "s0/m0/output/norm/0";
const std::string kInput = "s0/m0/input/linear/0";
const std::string kInputGradient = "s0/m0/grad_input/linear/0";
const std::string kMainGrad = "s0/main_grad/linear.weight/0";

class OneSidedTest : public ::testing::Test {
 protected:
  // A norm, and a linear that takes what the norm returned; `input` records a copy of it.
  TraceBuilder& start(TraceBuilder& builder) {
    return builder.add(0, {kNorm, wavy(8, 0.2)}).add(0, {kMainGrad, wavy(8, 0.7)});
  }
  static Tensor value(const std::string& id, bool needs_no_gradient) {
    Tensor tensor{id, wavy(8, 0.2)};
    tensor.needs_no_gradient = needs_no_gradient;
    return tensor;
  }
  Report compare() { return diff(reference_.write(), candidate_.write(), {}); }

  TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate"};
};

// Symptom: clean DTensor graphs diverged at grad_output of a redistribution: it hands on its own
// input on one device, whose gradient also has what other consumers contribute.
class LaterNameTest : public OneSidedTest {
 protected:
  const std::string kGradNorm = "s0/m0/grad_output/norm/0";
  const std::string kGather = "s0/m0/output/gather/0";
  const std::string kGradGather = "s0/m0/grad_output/gather/0";

  // `of_gather` is the candidate's second gradient, `of_norm` its first.
  Report compare_gradients(const std::vector<double>& of_gather,
                           const std::vector<double>& of_norm = wavy(8, 0.5),
                           const std::vector<double>& of_reference = wavy(8, 0.5)) {
    start(reference_).add(0, {kGather, wavy(8, 0.2)});
    start(candidate_).add(0, {kGather, wavy(8, 0.2)});
    reference_.add(0, {kGradGather, of_reference}).add(0, {kGradNorm, wavy(8, 0.5)});
    candidate_.add(0, {kGradGather, of_gather}).add(0, {kGradNorm, of_norm});
    return compare();
  }
};

TEST_F(LaterNameTest, AGradientOfItsOwnIsAPartOfTheFirstOnes) {
  const Report report = compare_gradients(wavy(8, 0.9));
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().not_judged, 1U);
}

TEST_F(LaterNameTest, TheFirstOneMustBeRight) {
  EXPECT_TRUE(compare_gradients(wavy(8, 0.9), wavy(8, 1.3)).diverged());
}

TEST_F(LaterNameTest, TwoNamesOfOneTensorAreWrongTogether) {
  EXPECT_TRUE(compare_gradients(wavy(8, 1.3), wavy(8, 1.3)).diverged());
}

TEST_F(LaterNameTest, AGradientThatTheReferenceHasApartIsJudged) {
  EXPECT_TRUE(compare_gradients(wavy(8, 0.9), wavy(8, 0.5), wavy(8, 0.7)).diverged());
}

// Seen with multi-token prediction under tensor parallelism: `grad_input` of a layer was "missing
// in the reference", where the layer took the very memory that a norm had returned.
TEST_F(OneSidedTest, GradientOfACopyIsNoDivergenceWhereTheReferenceHasAnAlias) {
  start(reference_).edge(0, kInput, kNorm);
  start(candidate_).add(0, {kInput, wavy(8, 0.2)}).add(0, {kInputGradient, wavy(8, 0.4)});
  const Report report = compare();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().missing_in_reference, 0U);
  EXPECT_THAT(report.notes, Contains(HasSubstr("1 gradient that only one side recorded is not")));
}

TEST_F(OneSidedTest, InputAndGradientOfACopyInTheReferenceAreAnsweredByTheAliasOfTheCandidate) {
  start(reference_).add(0, {kInput, wavy(8, 0.2)}).add(0, {kInputGradient, wavy(8, 0.4)});
  start(candidate_).edge(0, kInput, kNorm);
  const Report report = compare();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().missing_in_candidate, 0U);
}

TEST_F(OneSidedTest, AnOperatorThatTheCandidateLeavesOutIsFound) {
  start(reference_).add(0, {kInput, wavy(8, 0.3)}).add(0, {kInputGradient, wavy(8, 0.4)});
  start(candidate_).edge(0, kInput, kNorm);
  const Report report = compare();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kInput);
  EXPECT_EQ(report.counts().missing_in_candidate, 2U);
}

TEST_F(OneSidedTest, AnAliasOfAnotherModulesOutputAnswersForNothing) {
  const std::string other = "s0/m0/output/other/0";
  start(reference_).add(0, {other, wavy(8, 0.9)}).add(0, {kInput, wavy(8, 0.2)});
  start(candidate_).add(0, {other, wavy(8, 0.9)}).edge(0, kInput, other);
  const Report report = compare();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kInput);
}

TEST_F(OneSidedTest, AGradientThatTheReferenceNeedsNotIsNoDivergence) {
  start(reference_).add(0, value(kInput, true));
  start(candidate_).add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  EXPECT_FALSE(compare().diverged());
}

TEST_F(OneSidedTest, AGradientThatNobodyDeclaredUnneededIsMissing) {
  start(reference_).add(0, value(kInput, false));
  start(candidate_).add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  EXPECT_EQ(compare().counts().missing_in_reference, 1U);
}

TEST_F(OneSidedTest, AGradientThatTheCandidateNeedsNotIsNoDivergenceWhereAllParametersAreRight) {
  start(reference_).add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  start(candidate_).add(0, value(kInput, true));
  EXPECT_FALSE(compare().diverged());
}

// A recomputed forward needs gradients; the first one, without a graph, says nothing of them.
TEST_F(OneSidedTest, ARecomputedValueSpeaksForTheFirstForward) {
  start(reference_).add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  start(candidate_).add(0, value(kInput, false)).add(0, value("s0/m0/input/linear/0~", true));
  EXPECT_FALSE(compare().diverged());
}

// A detached activation: the gradient is cut off on its way to a parameter.
TEST_F(OneSidedTest, AGradientThatIsCutOffIsTheFirstDivergence) {
  start(reference_).add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  reference_.add(0, {"s0/main_grad/embedding.weight/0", wavy(8, 0.7)});
  start(candidate_).add(0, value(kInput, true));
  candidate_.add(0, {"s0/main_grad/embedding.weight/0", wavy(8, 1.7)});
  const Report report = compare();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kInputGradient);
}

// Seen with delayed weight gradients: the program adds them to the main gradient itself.
TEST_F(OneSidedTest, PartsOfAGradientThatAutogradNeverSeesAreAnsweredByTheReducedOne) {
  const std::string part = "s0/m0/param_grad/linear.weight/0";
  start(reference_).add(0, {part, wavy(8, 0.7)});
  start(candidate_);
  EXPECT_FALSE(compare().diverged());
}

TEST_F(OneSidedTest, AParameterWithoutAnyGradientIsFoundInItsFirstMicrobatch) {
  const std::string part = "s0/m0/param_grad/linear.weight/0";
  reference_.add(0, {part, wavy(8, 0.7)}).add(0, {kMainGrad, wavy(8, 0.7)});
  candidate_.add(0, {kMainGrad, std::vector<double>(8, 0.0)});
  const Report report = compare();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), part);
}

TEST_F(OneSidedTest, AMicrobatchThatIsLostIsMissing) {
  start(reference_).add(0, {"s0/m0/param_grad/linear.weight/0", wavy(8, 0.7)});
  reference_.add(0, {"s0/m1/param_grad/linear.weight/0", wavy(8, 0.7)});
  start(candidate_).add(0, {"s0/m0/param_grad/linear.weight/0", wavy(8, 0.7)});
  EXPECT_EQ(compare().counts().missing_in_candidate, 1U);
}

TEST_F(OneSidedTest, WithoutGradientsOfParametersAMissingGradientIsAFinding) {
  reference_.add(0, value(kInput, false)).add(0, {kInputGradient, wavy(8, 0.4)});
  candidate_.add(0, value(kInput, true));
  EXPECT_EQ(compare().counts().missing_in_candidate, 1U);
}

}  // namespace
}  // namespace ttrace
