#include "analysis/checks/other_precision.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using testing::TraceBuilder;

constexpr auto kStoredWeight = "s0/param/fc.weight/0";
constexpr auto kComputedOutput = "s0/m0/output/fc/0";

// Activations are BF16 on both sides, and parameters have the precision that the manifests name.
class OtherPrecision : public ::testing::Test {
 protected:
  Report run() {
    add(reference_);
    add(candidate_);
    return diff(reference_.write(), candidate_.write());
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate"};

 private:
  static void add(TraceBuilder& builder) {
    const ElementType stored =
        builder.manifest.precision == "f32" ? ElementType::kF32 : ElementType::kBF16;
    builder.add(0, {kStoredWeight, {1.0, 2.0, -0.5}, stored});
    builder.add(0, {kComputedOutput, {1.0, 0.25, 4.0}, ElementType::kBF16});
  }
};

// A cast that only gave a new value to a variable left the parameters in BF16, and the whole trace
// was judged by the bounds of BF16.
TEST_F(OtherPrecision, IsAFindingOfParametersWhereBothProgramsWantedTheSame) {
  candidate_.manifest.precision = "bf16";
  candidate_.manifest.intended = reference_.manifest.intended = "f32";
  const Report report = run();
  ASSERT_EQ(report.tensors.size(), 2U);
  for (const TensorVerdict& tensor : report.tensors) {
    EXPECT_EQ(tensor.fails(Question::kType), to_string(tensor.id) == kStoredWeight);
  }
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& first = report.tensors.front();
  ASSERT_EQ(to_string(first.id), kStoredWeight);
  ASSERT_TRUE(first.find(Question::kType)->claim);
  EXPECT_EQ(first.find(Question::kType)->claim->signature, Signature::kExtraRounding);
  EXPECT_WORDING(first.find(Question::kType)->claim->sentence);
}

TEST_F(OtherPrecision, IsNoneWhereAProgramAskedForItOrDidNotAsk) {
  candidate_.manifest.precision = "bf16";
  reference_.manifest.intended = "f32";
  candidate_.manifest.intended = "bf16";
  EXPECT_FALSE(run().diverged());
}

TEST(MissesIntention, AccusesTheCandidateAlone) {
  const auto manifest = [](const char* precision, const char* intended) {
    Manifest result;
    result.precision = precision;
    result.intended = intended;
    return result;
  };
  const Manifest right = manifest("f32", "f32");
  EXPECT_TRUE(misses_intention(right, manifest("bf16", "f32")));
  EXPECT_TRUE(misses_intention(manifest("bf16", "bf16"), manifest("f32", "bf16")));
  EXPECT_FALSE(misses_intention(right, right));
  EXPECT_FALSE(misses_intention(right, manifest("bf16", "bf16")));
  EXPECT_FALSE(misses_intention(right, manifest("bf16", ""))) << "it never asked";
  EXPECT_FALSE(misses_intention(manifest("f32", ""), manifest("bf16", "")));
  EXPECT_FALSE(misses_intention(manifest("bf16", "f32"), right)) << "the reference misses it";
  EXPECT_FALSE(misses_intention(manifest("bf16", "bf16"), manifest("fp8", "bf16")))
      << "parameters next to FP8 operands are BF16";
}

}  // namespace
}  // namespace ttrace
