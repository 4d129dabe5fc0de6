// Cases of random layouts that once failed: both programs and the check, as a campaign runs them.
#include "fuzz_layouts/case.h"
#include "fuzz_layouts/judge.h"
#include "support/temporary_directory.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace ttrace::fuzz_layouts {
namespace {

struct Regression {
  std::string name;
  std::string symptom;
  std::string layout;
};

std::ostream& operator<<(std::ostream& out, const Regression& regression) {
  return out << regression.layout;
}

class Regressions : public ::testing::TestWithParam<Regression> {};

TEST_P(Regressions, AreClean) {
  const Case layout = case_of(GetParam().layout);
  ASSERT_EQ(why_impossible(layout), "");
  const testing::TemporaryDirectory folder;
  JudgeOptions options{.bin = TTRACE_BIN,
                       .run_ranks = TTRACE_SOURCE "/examples/megatron_mini/run_ranks",
                       .base = TTRACE_SOURCE "/examples/tiny.yaml"};
  const CaseResult result = judge(layout, folder / "case", options);
  EXPECT_EQ(result.judgement, Judgement::kClean)
      << name_of(result.judgement) << ": " << result.detail << "; once: " << GetParam().symptom;
}

const Regression kRegressions[] = {
    {"mxfp8_under_a_loss_mask",
     "a scale of gradients was 1.8 times its bound: scales 1 of masked tokens, times 1/3",
     "precision=fp8 seed=108 masked=1 tied=1 recipe=3 cp=3 micro_batches=4 batch=4 sequence=36 "
     "vocabulary=271 ffn=36 heads=6 groups=2 head_size=16"},
    {"gradients_in_thirds",
     "the gradient of the loss had to be equal in every bit, though it was three times, over three",
     "precision=f32 seed=659 recompute=2 attention_dropout=10 cp=3 layers=2 micro_batches=6 "
     "batch=2 "
     "swiglu=1 sequence=48 vocabulary=258 ffn=75 heads=4 groups=2 head_size=12"},
    {"keys_of_a_second_step",
     "keys had 2.08 times their noise: five passes had not moved the bias that reaches all of them",
     "precision=f64 seed=557 zero1=1 dropout=10 masked=1 vpp=2 pp=2 dp=2 steps=2 layers=4 "
     "micro_batches=4 swiglu=1 sequence=20 vocabulary=288 ffn=36 heads=8"},
    {"one_block_of_gate_and_up",
     "no trace: the rows of swiglu's two parts were one block of 128, which its dims cut in two",
     "precision=fp8 seed=748 recipe=2 dp=2 layers=1 micro_batches=2 swiglu=1 ffn=64"},
    {"rows_of_two_micro_batches",
     "an expert's activation was said to take the linear's result of another micro-batch",
     "precision=f64 seed=114 ep=2 top_k=2 experts=6 dp=2 layers=1 micro_batches=2 batch=2 "
     "swiglu=1"},
};

INSTANTIATE_TEST_SUITE_P(FuzzLayouts,
                         Regressions,
                         ::testing::ValuesIn(kRegressions),
                         [](const auto& regression) { return regression.param.name; });

}  // namespace
}  // namespace ttrace::fuzz_layouts
