// Tests into which record a sum over ranks went.
#include "hooks/capture/open_sums.h"

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OpenSum sum_in(const std::string& module, std::int64_t elements, double squared = 1.0) {
  return {.module = module,
          .elements = elements,
          .sum = {.id = {}, .type = ElementType::kBF16, .addends = 2, .squared = squared}};
}

TensorId output_of(const std::string& path) {
  TensorId id;
  id.path = path;
  return id;
}

std::vector<double> squares(const std::vector<OpenSum>& sums) {
  std::vector<double> result;
  for (const OpenSum& open : sums) {
    result.push_back(open.sum.squared.value());
  }
  return result;
}

TEST(OpenSums, GoToTheRecordOfTheirModuleDirectionAndSizeInTheirOrder) {
  OpenSums sums;
  sums.begin(sum_in("mlp", 8, 1.0));
  sums.begin(sum_in("mlp", 4, 2.0));
  sums.begin(sum_in("attention", 8, 3.0));
  OpenSum backward = sum_in("", 8, 4.0);
  backward.backward = true;
  sums.begin(backward);
  sums.begin(sum_in("mlp", 8, 5.0));

  const auto settled = sums.settle(output_of("mlp"), "mlp", 8, false);
  EXPECT_THAT(squares(settled), ElementsAre(1.0, 5.0));
  EXPECT_EQ(settled.front().sum.id, output_of("mlp"));
  EXPECT_THAT(sums.settle(output_of("mlp"), "mlp", 8, false), IsEmpty()) << "taken out";
  EXPECT_THAT(squares(sums.settle(output_of("x"), "", 8, true)), ElementsAre(4.0));
  EXPECT_THAT(squares(sums.settle(output_of("mlp"), "mlp", 4, false)), ElementsAre(2.0));
}

TEST(OpenSums, SumThatTheProgramAnnouncesAndAnOperatorStartsCountsOnce) {
  OpenSums sums;
  sums.announce(sum_in("mlp", 8, 1.0));
  sums.begin(sum_in("mlp", 8, 2.0));
  EXPECT_THAT(squares(sums.settle(output_of("mlp"), "mlp", 8, false)), ElementsAre(1.0));
}

TEST(OpenSums, OneAnnouncementStandsForOneOperator) {
  OpenSums sums;
  sums.announce(sum_in("mlp", 8, 1.0));
  sums.begin(sum_in("mlp", 8, 2.0));
  sums.begin(sum_in("mlp", 8, 3.0));
  EXPECT_THAT(squares(sums.settle(output_of("mlp"), "mlp", 8, false)), ElementsAre(1.0, 3.0));
}

TEST(OpenSums, AnnouncementOfAnotherSizeTypeOrGroupIsAnotherSum) {
  OpenSums sums;
  sums.announce(sum_in("mlp", 8, 1.0));
  OpenSum wider = sum_in("mlp", 8, 2.0);
  wider.sum.type = ElementType::kF32;
  sums.begin(wider);
  OpenSum larger_group = sum_in("mlp", 8, 3.0);
  larger_group.sum.addends = 4;
  sums.begin(larger_group);
  EXPECT_THAT(squares(sums.settle(output_of("mlp"), "mlp", 8, false)), ElementsAre(1.0, 2.0, 3.0));
}

TEST(OpenSums, SumsOfALossFunctionAreNoAddendsOfTheLoss) {
  OpenSums sums;
  sums.begin(sum_in("", 8, 1.0));
  OpenSum backward = sum_in("", 8, 2.0);
  backward.backward = true;
  sums.begin(backward);
  sums.forget_outside_of_scopes();
  EXPECT_THAT(sums.settle(output_of("loss"), "", 8, false), IsEmpty());
  EXPECT_THAT(squares(sums.settle(output_of("x"), "", 8, true)), ElementsAre(2.0));
}

}  // namespace
}  // namespace ttrace
