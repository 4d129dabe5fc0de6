#include "analysis/findings/close_look.h"

#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kOutput;
using ::testing::Pair;
using testing::part;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

class CloseLookTest : public ::testing::Test {
 protected:
  CloseLook look() {
    const Report report = diff(reference_.write(), candidate_.write());
    EXPECT_TRUE(report.close_look);
    return report.close_look.value_or(CloseLook());
  }

  const std::vector<double> values_ = wavy(8);
  const std::vector<double> left_{values_.begin(), values_.begin() + 4};
  const std::vector<double> right_{values_.begin() + 4, values_.end()};
  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

TEST_F(CloseLookTest, EveryRanksPartIsComparedWithItsPartOfTheReference) {
  reference_.add(0, {kOutput, values_});
  candidate_.add(0, {kOutput, left_, ElementType::kF32, {}, part(8, 0, 2)})
      .add(1, {kOutput, scaled(right_, 2.0), ElementType::kF32, {}, part(8, 1, 2)});
  const CloseLook found = look();
  ASSERT_EQ(found.ranks.size(), 2U);
  EXPECT_EQ(found.ranks[0].error, 0.0);
  EXPECT_NEAR(found.ranks[1].error, found.ranks[1].reference_norm, 1e-12);
  EXPECT_EQ(found.ranks[1].elements, 4);
  EXPECT_THAT(found.ranks[1].coordinates, ElementsAre(Pair("tp", 1)));
  EXPECT_FALSE(found.ranks[1].is_addend);
}

TEST_F(CloseLookTest, OfCopiesThatDifferTheWrongOneIsSeen) {
  reference_.add(0, {kOutput, values_});
  candidate_.add(0, {kOutput, values_}).add(1, {kOutput, scaled(values_, 1.5)});
  const CloseLook found = look();
  ASSERT_EQ(found.ranks.size(), 2U);
  EXPECT_EQ(found.ranks[0].error, 0.0);
  EXPECT_GT(found.ranks[1].error, 0.0);
}

TEST_F(CloseLookTest, AddendsHaveNoCounterpart) {
  Placement first = part(8, 0, 1);
  first.partial_count = 2;
  Placement second = first;
  second.partial_index = 1;
  reference_.add(0, {kOutput, values_});
  candidate_.add(0, {kOutput, values_, ElementType::kF32, {}, first})
      .add(1, {kOutput, values_, ElementType::kF32, {}, second});
  const CloseLook found = look();
  ASSERT_EQ(found.ranks.size(), 2U);
  EXPECT_TRUE(found.ranks[0].is_addend);
}

TEST_F(CloseLookTest, PartsBeginWithTheOneThatErrsMost) {
  std::vector<double> wrong = values_;
  wrong[1] += 1.0;  // row 0, column 1
  wrong[6] += 3.0;  // row 1, column 2
  reference_.add(0, {kOutput, values_, ElementType::kF32, {2, 4}});
  candidate_.add_everywhere({kOutput, wrong, ElementType::kF32, {2, 4}});
  const CloseLook found = look();
  std::vector<std::string> names;
  for (const PartError& one : found.parts) {
    names.push_back(one.where);
  }
  EXPECT_THAT(names,
              ElementsAre("index 1 of dimension 0",
                          "index 0 of dimension 0",
                          "index 2 of dimension 1",
                          "index 1 of dimension 1"));
  EXPECT_NEAR(found.parts[0].error, 3.0, 1e-6);
}

// Two rows of four heads of two features each; head 2 errs most.
class CloseLookAtHeads : public CloseLookTest {
 protected:
  void build(const std::string& path) {
    const std::string id = "s0/m0/output/" + path + "/0";
    std::vector<double> wrong = rows_;
    wrong[1] += 0.5;
    wrong[4] += 1.0;
    wrong[13] += 1.0;
    reference_.add(0, {id, rows_, ElementType::kF32, {2, 8}});
    candidate_.add_everywhere({id, wrong, ElementType::kF32, {2, 8}});
    for (TraceBuilder* side : {&reference_, &candidate_}) {
      side->manifest.model["hidden"] = "8";
      side->manifest.model["heads"] = "4";
    }
  }
  static std::vector<std::string> heads(const CloseLook& look) {
    std::vector<std::string> names;
    for (const PartError& part : look.parts) {
      if (part.is_head) {
        names.push_back(part.where);
      }
    }
    return names;
  }

  const std::vector<double> rows_ = wavy(16);
};

TEST_F(CloseLookAtHeads, TheHeadsOfAnAttentionAreListedFirst) {
  build("layers.0.self_attention.core_attention");
  const CloseLook found = look();
  EXPECT_THAT(heads(found), ElementsAre("head 2", "head 0"));
  ASSERT_GE(found.parts.size(), 5U);
  EXPECT_NEAR(found.parts[0].error, std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(found.parts[0].reference_norm,
              std::hypot(std::hypot(rows_[4], rows_[5]), std::hypot(rows_[12], rows_[13])),
              1e-6);
  EXPECT_FALSE(found.parts[2].is_head);
}

TEST_F(CloseLookAtHeads, OtherTensorsHaveNone) {
  build("layers.0.mlp.fc1");
  EXPECT_THAT(heads(look()), ElementsAre());
}

TEST_F(CloseLookAtHeads, NeitherHasAModelThatDoesNotSayHowManyThereAre) {
  build("layers.0.self_attention.core_attention");
  reference_.manifest.model.erase("heads");
  candidate_.manifest.model.erase("heads");
  EXPECT_THAT(heads(look()), ElementsAre());
}

TEST_F(CloseLookAtHeads, TextAndJsonNameThem) {
  build("layers.0.self_attention.core_attention");
  const Report report = diff(reference_.write(), candidate_.write());
  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(text.str(), HasSubstr("; heads of largest error: head 2 (1.41), head 0 (0.5)\n"));
  std::ostringstream json;
  write_json(json, report);
  EXPECT_THAT(json.str(), HasSubstr(R"("parts":[{"where":"head 2",)"));
}

TEST_F(CloseLookTest, ACleanRunHasNone) {
  reference_.add(0, {kOutput, values_});
  candidate_.add_everywhere({kOutput, values_});
  EXPECT_FALSE(diff(reference_.write(), candidate_.write()).close_look);
}

}  // namespace
}  // namespace ttrace
