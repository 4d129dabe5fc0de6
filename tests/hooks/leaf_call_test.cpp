// When two operators are one call of a leaf module.
#include "hooks/capture/leaf_call.h"

#include <gtest/gtest.h>

#include <array>

namespace ttrace {
namespace {

constexpr std::array<int, 1> kWeight = {0};
constexpr std::array<int, 1> kBias = {1};
constexpr std::array<int, 2> kBoth = {1, 0};

class LeafCalls : public ::testing::Test {
 protected:
  MicrobatchState microbatch_;
  LeafCall product_{"fc", kWeight, &microbatch_, false};  // is pending
  LeafCall bias_{"fc", kBias, &microbatch_, false};
};

TEST_F(LeafCalls, ProductAndTheAdditionOfItsBiasAreOneCall) {
  EXPECT_TRUE(continues_call(product_, bias_, true));
}

TEST_F(LeafCalls, OperatorThatDoesNotTakeTheResultBeginsAnotherCall) {
  EXPECT_FALSE(continues_call(product_, bias_, false));
}

TEST_F(LeafCalls, ParameterThatIsUsedAgainBeginsTheNextCall) {
  EXPECT_FALSE(continues_call(product_, product_, true)) << "linear(linear(x))";
  bias_.parameters = kBoth;
  EXPECT_FALSE(continues_call(product_, bias_, true));
}

TEST_F(LeafCalls, AnotherModuleMicrobatchOrDirectionBeginsAnotherCall) {
  LeafCall next = bias_;
  next.module = "norm";
  EXPECT_FALSE(continues_call(product_, next, true));
  const MicrobatchState other;
  next = bias_;
  next.microbatch = &other;
  EXPECT_FALSE(continues_call(product_, next, true));
  next = bias_;
  next.recompute = true;
  EXPECT_FALSE(continues_call(product_, next, true));
}

}  // namespace
}  // namespace ttrace
