// Names that reports give to the values of enumerations. They stood in tables by position.
#include "analysis/bounds/limits.h"
#include "analysis/findings/diagnosis.h"
#include "analysis/findings/verdict.h"
#include "support/enumerators.h"

#include <ttrace/collective_call.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <type_traits>

namespace ttrace {
namespace {

using testing::enumerators_of;
using ::testing::HasSubstr;

// Symptom: a report called every cause by its neighbour's name, a transposed tensor "shifted",
// after a new signature had been put in the middle of the list.
TEST(Names, ASignatureIsCalledByItsOwnNameWhereverItStands) {
  const auto signatures = enumerators_of<Signature>();
  ASSERT_EQ(signatures.size(), static_cast<std::size_t>(Signature::kSource) + 1);
  for (const auto& [signature, name] : signatures) {
    EXPECT_EQ(name_of(signature), name);
  }
}

// Symptom: the JSON report had an empty text for a symptom that the table of names lacked.
TEST(Names, NothingThatAReportSaysOfACheckIsWithoutANameOrSharesIt) {
  const auto expect_names = []<class Enum>(std::type_identity<Enum>) {
    std::set<std::string_view> names;
    const auto all = enumerators_of<Enum>();
    ASSERT_GT(all.size(), 1U);
    for (const auto& [value, spelled] : all) {
      EXPECT_NE(name_of(value), "") << spelled;
      EXPECT_TRUE(names.insert(name_of(value)).second) << spelled;
    }
  };
  expect_names(std::type_identity<Symptom>());
  expect_names(std::type_identity<Question>());
  expect_names(std::type_identity<Tier>());
  expect_names(std::type_identity<Status>());
  expect_names(std::type_identity<Excuse>());
}

// A class that the list lacks would be read beyond the end of the table of limits.
TEST(Names, EveryClassAndStatisticStandsInTheListsOfWhatIsCalibrated) {
  const auto expect_listed = [](const auto& list, const auto& enumerators) {
    ASSERT_EQ(list.size(), enumerators.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(list[i], enumerators[i].value) << enumerators[i].name;
    }
  };
  expect_listed(kTensorClasses, enumerators_of<TensorClass>());
  expect_listed(kStatistics, enumerators_of<Statistic>());
}

// Traces tell of calls in these words, so one that stood for another call would be read as that.
TEST(Names, ACollectiveIsWrittenByTheNameOfItsOperation) {
  for (const auto& [operation, name] : enumerators_of<CollectiveOperation>()) {
    EXPECT_THAT(to_text({.operation = operation}), HasSubstr("\"operation\":\"" + name + "\""));
  }
  for (const auto& [reduction, name] : enumerators_of<CollectiveReduction>()) {
    EXPECT_THAT(to_text({.reduction = reduction}), HasSubstr("\"reduction\":\"" + name + "\""));
  }
}

}  // namespace
}  // namespace ttrace
