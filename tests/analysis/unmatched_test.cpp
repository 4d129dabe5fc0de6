#include "analysis/align/unmatched.h"

#include "analysis/diff.h"
#include "analysis/rename/rename.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

class Unmatched : public ::testing::Test {
 protected:
  void add(TraceBuilder& trace,
           const std::string& id,
           const std::vector<std::int64_t>& shape) const {
    trace.add(0,
              {id, wavy(static_cast<std::size_t>(element_count(shape))), ElementType::kF32, shape});
  }

  // Layers whose names differ, with one tensor in common.
  void add_layers() {
    for (const std::string layer : {"0", "1", "2"}) {
      for (const std::string kind : {"param", "main_grad"}) {
        add(reference_, "s0/" + kind + "/layers." + layer + ".attention.wo.weight/0", {4, 4});
        add(reference_, "s0/" + kind + "/layers." + layer + ".feed_forward.w2.weight/0", {4, 16});
        add(candidate_, "s0/" + kind + "/decoder.layers." + layer + ".attn.proj.weight/0", {4, 4});
        add(candidate_, "s0/" + kind + "/decoder.layers." + layer + ".mlp.fc2.weight/0", {4, 16});
      }
    }
  }

  Report compared() {
    const Trace reference = reference_.write();
    const Trace candidate = candidate_.write();
    return diff(reference, candidate);
  }

  TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate"};
};

TEST_F(Unmatched, NamesAreListedOnceForAllLayersWithTheNearestOfTheOtherSide) {
  add_layers();
  add(reference_, "s0/m0/output/norm/0", {2});
  add(candidate_, "s0/m0/output/norm/0", {2});
  const Report report = compared();
  ASSERT_EQ(report.unmatched.size(), 4U);
  const UnmatchedName& first = report.unmatched[0];
  EXPECT_EQ(first.side, Names::kReference);
  EXPECT_EQ(first.path, "layers.*.attention.wo.weight");
  EXPECT_THAT(first.kinds, ElementsAre(Kind::kParam, Kind::kMainGrad));
  EXPECT_EQ(first.tensors, 6U);
  ASSERT_FALSE(first.nearest.empty());
  EXPECT_EQ(first.nearest[0].path, "decoder.layers.*.attn.proj.weight") << "the shape decides";
  EXPECT_EQ(report.unmatched[1].nearest[0].path, "decoder.layers.*.mlp.fc2.weight");
  EXPECT_EQ(report.unmatched[3].side, Names::kCandidate);
  EXPECT_EQ(report.unmatched[3].nearest[0].path, "layers.*.feed_forward.w2.weight");

  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(text.str(),
              AllOf(HasSubstr("\n  names      only one program has them"),
                    HasSubstr(": reference: layers.*.attention.wo.weight 4x4 (param, main_grad; 6 "
                              "tensors); nearest in the candidate: "
                              "decoder.layers.*.attn.proj.weight 4x4, ")));
  std::ostringstream json;
  write_json(json, report);
  const auto listed = nlohmann::json::parse(json.str())["unmatched"];
  ASSERT_EQ(listed.size(), 4U);
  EXPECT_EQ(listed[0]["side"], "reference");
  EXPECT_EQ(listed[0]["kinds"], nlohmann::json({"param", "main_grad"}));
  EXPECT_EQ(listed[0]["tensors"], 6);
  EXPECT_EQ(listed[0]["nearest"][0]["path"], "decoder.layers.*.attn.proj.weight");
  EXPECT_EQ(listed[0]["nearest"][0]["shape"], nlohmann::json({4, 4}));
}

TEST_F(Unmatched, SaysWithoutACommonTensorWhatIsNearestAndWhatToDo) {
  add_layers();
  try {
    static_cast<void>(compared());
    FAIL() << "they were compared";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("no tensor is in both traces"),
                      HasSubstr("layers.*.attention.wo.weight 4x4 and "
                                "decoder.layers.*.attn.proj.weight 4x4"),
                      HasSubstr("--rename FILE")));
  }
}

TEST_F(Unmatched, WhatOneSideAloneLacksIsNoQuestionOfNames) {
  add(reference_, "s0/m0/output/norm/0", {2});
  add(reference_, "s0/m0/output/head/0", {2});
  add(candidate_, "s0/m0/output/norm/0", {2});
  EXPECT_THAT(compared().unmatched, IsEmpty());
}

TEST_F(Unmatched, WhatARenameMapDeclaresIsAllowedToBeMissing) {
  add(reference_, "s0/m0/output/plain/0", {2});
  add(reference_, "s0/m0/output/rope/0", {2});
  add(candidate_, "s0/m0/output/block/0", {2});
  add(candidate_, "s0/m0/output/dropout/0", {2});
  add(candidate_, "s0/m0/output/forgotten/0", {2});
  static_cast<void>(reference_.write());
  rename_trace(folder_ / "reference", folder_ / "renamed", RenameMap::parse(R"(
tensors:
  - {reference: plain, candidate: block}
  - {reference: rope, candidate: ~}
  - {reference: ~, candidate: dropout}
)"));
  const Report report = diff(Trace::open(folder_ / "renamed"), candidate_.write());
  EXPECT_EQ(report.counts().allowed_missing, 1U);
  EXPECT_EQ(report.counts().missing_in_reference, 1U);
  ASSERT_EQ(report.unmatched.size(), 1U) << "listed although the other side has no such name";
  EXPECT_EQ(report.unmatched[0].path, "forgotten");
  EXPECT_THAT(report.unmatched[0].nearest, IsEmpty());
}

TEST_F(Unmatched, ProgramsOfOtherNamesAreComparedByWhatBothSayOfThemselves) {
  add(reference_, "s0/m0/output/norm/0", {2});
  add(candidate_, "s0/m0/output/norm/0", {2});
  reference_.manifest.model = {{"class", "Plain"}, {"hidden", "128"}, {"heads", "4"}};
  candidate_.manifest.model = {{"class", "GPTModel"}, {"hidden", "128"}, {"num_heads", "4"}};
  static_cast<void>(reference_.write());
  rename_trace(folder_ / "reference", folder_ / "renamed", RenameMap::parse("tensors: []"));
  const Report report = diff(Trace::open(folder_ / "renamed"), candidate_.write());
  EXPECT_THAT(report.remarks,
              Contains(AllOf(HasSubstr("these model keys were not compared"),
                             HasSubstr("heads `4` and absent"),
                             Not(HasSubstr("hidden")))));
  EXPECT_THAT(report.remarks, Contains(HasSubstr("the model's class is `Plain` in the reference")));

  TraceBuilder smaller(folder_ / "smaller", "candidate");
  add(smaller, "s0/m0/output/norm/0", {2});
  smaller.manifest.model = {{"class", "GPTModel"}, {"hidden", "64"}};
  EXPECT_THROW(static_cast<void>(diff(Trace::open(folder_ / "renamed"), smaller.write())),
               UsageError);
}

}  // namespace
}  // namespace ttrace
