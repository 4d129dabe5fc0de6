// The generator yields what can exist, and the shrinker finds what matters.
#include "fuzz_layouts/case.h"
#include "fuzz_layouts/generate.h"
#include "fuzz_layouts/judge.h"
#include "fuzz_layouts/shrink.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace ttrace::fuzz_layouts {
namespace {

using ::testing::HasSubstr;

TEST(Case, PrintsAndReadsBack) {
  for (int i = 0; i < 50; ++i) {
    const Case layout = generate(3, i, "bf16");
    EXPECT_EQ(case_of(text_of(layout)), layout) << text_of(layout);
  }
}

TEST(Case, ThatIsMisspeltIsAnErrorThatQuotesIt) {
  for (const char* text : {"tq=2", "tp=two", "tp", "tp="}) {
    try {
      (void)case_of(text);
      ADD_FAILURE() << text << " was read";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.message(), HasSubstr(text));
    }
  }
}

TEST(Case, WithEveryFieldAtItsSimplestCanExist) {
  EXPECT_EQ(why_impossible(case_of("precision=f64 seed=1")), "");
}

TEST(Case, ThatCannotExistIsToldWithTheNumbersThatClash) {
  EXPECT_EQ(why_impossible(case_of("tp=3 heads=4")), "tp 3 does not divide heads 4");
  EXPECT_EQ(why_impossible(case_of("dp=2 micro_batches=3")),
            "dp 2 does not divide micro_batches 3");
  EXPECT_EQ(why_impossible(case_of("tp=4 heads=12 groups=6")),
            "neither of tp and groups divides the other");
  // Symptom: megatron_mini refused a case that was to be clean.
  EXPECT_EQ(why_impossible(case_of("tp=3 heads=3 head_size=10 ffn=36")),
            "tp 3 does not divide rows of linear_qkv 50");
}

TEST(Generate, GivesTheSameCasesForTheSameSeed) {
  EXPECT_EQ(generate(5, 7, "f32"), generate(5, 7, "f32"));
  EXPECT_NE(generate(5, 7, "f32"), generate(6, 7, "f32"));
}

TEST(Generate, YieldsOnlyCasesThatCanExist) {
  for (int i = 0; i < 500; ++i) {
    const Case layout = generate(1, i, "bf16");
    EXPECT_EQ(why_impossible(layout), "") << text_of(layout);
    EXPECT_LE(layout.ranks(), 8);
    EXPECT_EQ(without_idle_features(layout), layout);
  }
}

TEST(Generate, GivesLayersThatDivideTheRanksInAWayOfTheirOwnOnRequest) {
  std::set<int> degrees;
  for (int i = 0; i < 40; ++i) {
    const Case layout = generate(1, i, "bf16", true);
    EXPECT_EQ(why_impossible(layout), "") << text_of(layout);
    EXPECT_THAT(options_of(layout), HasSubstr("--layer-dp"));
    degrees.insert(layout.smaller_degree());
  }
  EXPECT_THAT(degrees, ::testing::IsSupersetOf({1, 2}));
}

class Coverage : public ::testing::TestWithParam<std::string> {};

TEST_P(Coverage, OfSixtyFourCasesIsEveryFeatureOfThePrecision) {
  std::vector<Case> cases;
  for (int i = 0; i < 64; ++i) {
    cases.push_back(fuzz_layouts::generate(1, i, GetParam()));  // std has one too
  }
  for (const Feature& feature : features()) {
    const auto count = std::count_if(cases.begin(), cases.end(), feature.on);
    if (feature.can_be_on(GetParam())) {
      EXPECT_GE(count, 1) << feature.name;
    } else if (feature.where == Where::kNotFp8) {
      EXPECT_EQ(count, 0) << feature.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Generate,
                         Coverage,
                         ::testing::Values("f64", "f32", "bf16", "fp8"),
                         [](const auto& precision) { return precision.param; });

TEST(Shrink, FindsThePlantedMinimum) {
  const auto fails = [](const Case& c) { return c.tp >= 2 && c.swiglu != 0; };
  const Case start = case_of(
      "precision=f64 seed=9 tp=4 sp=1 dp=2 swiglu=1 tied=1 masked=1 heads=8 groups=4 layers=4 "
      "micro_batches=6 batch=3 sequence=48 ffn=64 vocabulary=271 head_size=16");
  ASSERT_EQ(why_impossible(start), "");
  ASSERT_TRUE(fails(start));
  EXPECT_EQ(shrink(start, fails, 1000), case_of("precision=f64 seed=9 tp=2 swiglu=1"));
}

TEST(Shrink, KeepsWhatFailsOnlyTogether) {
  const auto fails = [](const Case& c) { return c.vocabulary % 2 == 1 && c.micro_batches >= 3; };
  const Case start = case_of("vocabulary=271 micro_batches=8 layers=6 dp=4 packed=1");
  EXPECT_EQ(shrink(start, fails, 1000), case_of("micro_batches=3"));
}

TEST(Shrink, AsksNoMoreOftenThanItMayAndOnlyAboutPossibleCases) {
  int asked = 0;
  const auto fails = [&](const Case& c) {
    ++asked;
    EXPECT_EQ(why_impossible(c), "");
    return c.layers == 8;
  };
  (void)shrink(generate(2, 3, "f64"), fails, 5);
  EXPECT_LE(asked, 5);
}

nlohmann::json tensor(const char* id, double error, double norm) {
  return {{"id", id}, {"error", error}, {"reference_norm", norm}};
}

TEST(LargestDistance, ForgivesSmallTensorsBesideLargeOnesOfTheirKind) {
  const nlohmann::json tensors = {tensor("s0/m0/output/decoder.layers.0/0", 1e-9, 1e-6),
                                  tensor("s0/m0/output/decoder.layers.1/0", 1e-9, 100.0),
                                  tensor("s0/main_grad/output_layer.weight/0", 1e-12, 1.0)};
  const Distance worst = largest_distance(tensors);
  EXPECT_EQ(worst.id, "s0/m0/output/decoder.layers.0/0");
  EXPECT_DOUBLE_EQ(worst.value, 1e-9 / 0.1);
}

// Symptom: every layout with pipeline stages was too far, because what stages receive from each
// other is in the candidate alone and has no error.
TEST(LargestDistance, LeavesOutWhatHasNoError) {
  nlohmann::json tensors = {tensor("s0/m0/received/decoder.layers.0/0", 0.0, 0.0),
                            tensor("s0/m0/output/decoder.layers.1/0", 1e-15, 1.0)};
  tensors[0]["error"] = nullptr;
  tensors[0]["reference_norm"] = nullptr;
  EXPECT_DOUBLE_EQ(largest_distance(tensors).value, 1e-15);
}

TEST(LargestDistance, OfNanIsNan) {
  nlohmann::json tensors = {tensor("s0/m0/output/decoder.layers.0/0", 0.0, 1.0),
                            tensor("s0/m0/output/decoder.layers.1/0", 1e-15, 1.0)};
  tensors[0]["error"] = "NaN";
  EXPECT_TRUE(std::isnan(largest_distance(tensors).value));
}

}  // namespace
}  // namespace ttrace::fuzz_layouts
