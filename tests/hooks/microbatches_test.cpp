// Tests to which micro-batch the running code belongs.
#include "hooks/capture/microbatches.h"

#include <gtest/gtest.h>

namespace ttrace {
namespace {

constexpr int kNoTask = -1;

class OpenMicrobatches : public ::testing::Test {
 protected:
  MicrobatchPtr first_ = std::make_shared<MicrobatchState>();
  MicrobatchPtr second_ = std::make_shared<MicrobatchState>();
  Microbatches microbatches_;
};

TEST_F(OpenMicrobatches, LatestOneIsCurrentUntilItCloses) {
  EXPECT_EQ(microbatches_.current(kNoTask), nullptr);
  microbatches_.open(first_);
  microbatches_.open(second_);
  EXPECT_EQ(microbatches_.current(kNoTask), second_);
  microbatches_.close(second_);
  EXPECT_EQ(microbatches_.current(kNoTask), first_);
}

TEST_F(OpenMicrobatches, ResumedOneIsCurrentAndTheOtherStaysOpen) {
  microbatches_.open(first_);
  microbatches_.open(second_);
  EXPECT_TRUE(microbatches_.use(first_));
  EXPECT_EQ(microbatches_.current(kNoTask), first_);
  EXPECT_FALSE(microbatches_.use(first_)) << "is current already";
  microbatches_.close(first_);
  EXPECT_EQ(microbatches_.current(kNoTask), second_);
  EXPECT_FALSE(microbatches_.use(first_)) << "is closed";
  EXPECT_EQ(microbatches_.current(kNoTask), second_);
}

TEST_F(OpenMicrobatches, GraphTaskBelongsToTheMicrobatchOfItsFirstGradient) {
  microbatches_.open(first_);
  microbatches_.open(second_);
  microbatches_.bind(7, first_);
  EXPECT_EQ(microbatches_.current(7), first_);
  EXPECT_EQ(microbatches_.current(8), second_);
  microbatches_.close(first_);
  EXPECT_EQ(microbatches_.current(7), first_) << "its gradients may arrive later";
  microbatches_.clear();
  EXPECT_EQ(microbatches_.current(7), nullptr);
}

}  // namespace
}  // namespace ttrace
