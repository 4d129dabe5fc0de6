// Programs that divide gradients at different places.
#include "trace/merge/gradient_choice.h"

#include "analysis/diff.h"
#include "support/temporary_directory.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace ttrace {
namespace {

using ::testing::IsEmpty;
using testing::scaled;
using ::testing::SizeIs;
using testing::TraceBuilder;
using testing::wavy;
using Numbers = std::vector<double>;

class GradientChoiceTest : public ::testing::Test {
 protected:
  // Backward of two modules, whose gradients are `factor` times the reference's.
  void add_backward(double factor, double factor_of_first = 0.0) {
    const double last = factor_of_first > 0.0 ? factor_of_first : factor;
    for (const auto& [id, of] :
         std::vector<std::pair<std::string, double>>{{"s0/m0/grad_output/head/0", last},
                                                     {"s0/m0/grad_output/fc/0", factor},
                                                     {"s0/m0/grad_output/stem/0", factor},
                                                     {"s0/m0/param_grad/fc.weight/0", factor}}) {
      reference_.add(0, {id, wavy(32, of)});
      candidate_.add(0, {id, scaled(wavy(32, of), of)});
    }
  }
  void add_main(double factor) {
    reference_.add(0, {"s0/main_grad/fc.weight/0", wavy(32)});
    candidate_.add(0, {"s0/main_grad/fc.weight/0", scaled(wavy(32), factor)});
  }
  Report compare() {
    const Trace reference = reference_.write();
    Trace candidate = candidate_.write();
    choices_ = settle_gradient_choices(reference, candidate);
    return diff(reference, candidate);
  }

  testing::TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate"};
  std::vector<GradientChoice> choices_;
};

// Symptom: a reference that divides by the number of tokens at the loss, next to a candidate that
// does so at the main gradients, gave 100 findings, and "256.0 = 2^8, a loss scale".
TEST_F(GradientChoiceTest, AFactorOfAllGradientsThatTheMainGradientsDoNotHaveIsAChoice) {
  add_backward(256.0);
  add_main(1.0);
  EXPECT_FALSE(compare().diverged());
  ASSERT_THAT(choices_, SizeIs(1));
  EXPECT_EQ(choices_.front().factor, 256.0);
}

TEST_F(GradientChoiceTest, AFactorIsAFractionOfSmallNumbers) {
  add_backward(35.0 / 32.0);
  add_main(1.0);
  static_cast<void>(compare());
  ASSERT_THAT(choices_, SizeIs(1));
  EXPECT_EQ(choices_.front().factor, 35.0 / 32.0);
}

// Symptom: two ranks that hold the same gradients in BF16 were taken to have 0.25 and 0.24992 times
// the reference's, and then did not hold the same ones any more.
TEST_F(GradientChoiceTest, RanksWhoseFactorsDifferByLessThanARoundingHaveOne) {
  TraceBuilder ranks(folder_ / "ranks", "candidate", 2);
  for (const char* id : {"s0/m0/grad_output/head/0", "s0/m0/grad_output/fc/0"}) {
    reference_.add(0, {id, wavy(32), ElementType::kBF16});
    for (const int rank : {0, 1}) {
      Numbers values = scaled(wavy(32), 0.25);
      for (double& value : values) {
        value *= rank == 0 ? 1.0 : 0.9985;  // as its own sum of addends rounds
      }
      ranks.add(rank, {id, values, ElementType::kBF16});
    }
  }
  reference_.add(0, {"s0/main_grad/fc.weight/0", wavy(32)});
  ranks.add_everywhere({"s0/main_grad/fc.weight/0", wavy(32)});
  Trace candidate = ranks.write();
  const auto choices = settle_gradient_choices(reference_.write(), candidate);
  ASSERT_THAT(choices, SizeIs(2));
  EXPECT_EQ(choices[0].factor, 0.25);
  EXPECT_EQ(choices[1].factor, 0.25);
}

TEST_F(GradientChoiceTest, WhereTheMainGradientsHaveItItIsAFinding) {
  add_backward(2.0);
  add_main(2.0);
  EXPECT_TRUE(compare().diverged());
  EXPECT_THAT(choices_, IsEmpty());
}

TEST_F(GradientChoiceTest, ASmallFactorOfTheMainGradientsIsAFinding) {
  add_backward(1.015);
  add_main(1.015);
  EXPECT_TRUE(compare().diverged());
  EXPECT_THAT(choices_, IsEmpty());
}

// A mean of means: the micro-batches' factors are not 1, and nobody weighs them.
TEST_F(GradientChoiceTest, FactorsThatTheirSumDoesNotUndoAreAFinding) {
  const Numbers first = wavy(32, 1.0);
  const Numbers second = wavy(32, 2.0);
  Numbers sum(32);
  Numbers wrong(32);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = first[i] + second[i];
    wrong[i] = 1.0625 * first[i] + 0.9375 * second[i];
  }
  for (const auto& [id, values, factor] : std::vector<std::tuple<std::string, Numbers, double>>{
           {"s0/m0/grad_output/fc/0", first, 1.0625}, {"s0/m1/grad_output/fc/0", second, 0.9375}}) {
    reference_.add(0, {id, values});
    candidate_.add(0, {id, scaled(values, factor)});
  }
  reference_.add(0, {"s0/main_grad/fc.weight/0", sum});
  candidate_.add(0, {"s0/main_grad/fc.weight/0", wrong});
  EXPECT_TRUE(compare().diverged());
  EXPECT_THAT(choices_, IsEmpty());
}

TEST_F(GradientChoiceTest, WithoutMainGradientsItIsAFinding) {
  add_backward(2.0);
  EXPECT_TRUE(compare().diverged());
  EXPECT_THAT(choices_, IsEmpty());
}

TEST_F(GradientChoiceTest, AFactorOfSomeGradientsIsAFinding) {
  add_backward(2.0, 1.0);
  add_main(1.0);
  EXPECT_TRUE(compare().diverged());
  EXPECT_THAT(choices_, IsEmpty());
}

}  // namespace
}  // namespace ttrace
