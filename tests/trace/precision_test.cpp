#include "trace/base/precision.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::ElementsAre;

TEST(Precisions, SayWhatIsStoredAndHowCoarseItGets) {
  EXPECT_EQ(precision_of("bf16").stored, ElementType::kBF16);
  EXPECT_EQ(precision_of("bf16").coarsest, ElementType::kBF16);
  EXPECT_EQ(precision_of("fp8").stored, ElementType::kBF16);
  EXPECT_EQ(precision_of("fp8").coarsest, ElementType::kE4M3);
  EXPECT_EQ(precision_of("fp8_f32").stored, ElementType::kF32);
  EXPECT_EQ(precision_of("fp8_f32").coarsest, ElementType::kE4M3);
}

TEST(Precisions, SayInWhatOperatorsAreChecked) {
  EXPECT_EQ(precision_of("f64").wider, "");
  EXPECT_EQ(precision_of("f32").wider, "f64");
  EXPECT_EQ(precision_of("bf16").wider, "f32");
  EXPECT_EQ(precision_of("f16").wider, "f32");
  EXPECT_EQ(precision_of("fp8").wider, "fp8_f32");
  for (const std::string& name : precisions_on_request()) {
    const std::string_view wider = precision_of(name).wider;
    EXPECT_TRUE(wider.empty() || find_precision(wider) != nullptr) << name;
  }
}

TEST(Precisions, OfCheckAreAllOnRequest) {
  EXPECT_THAT(precisions_on_request(), ElementsAre("f64", "f32", "bf16", "f16", "fp8"));
  EXPECT_EQ(precision_names(), "f64, f32, bf16, f16, fp8 or fp8_f32");
  EXPECT_EQ(find_precision("i64"), nullptr);
  EXPECT_THROW(static_cast<void>(precision_of("f8")), FormatError);
}

}  // namespace
}  // namespace ttrace
