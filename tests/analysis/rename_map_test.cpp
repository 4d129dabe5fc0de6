#include "analysis/rename/rename_map.h"

#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorId renamed_id(const std::string& text) {
  return parse_tensor_id(text);
}

std::vector<std::string> names_of(const std::vector<TensorId>& ids) {
  std::vector<std::string> texts;
  for (const TensorId& id : ids) {
    texts.push_back(to_string(id));
  }
  return texts;
}

std::vector<std::string> to_candidate(const RenameMap& map, const std::string& id) {
  return names_of(map.find(Names::kReference, renamed_id(id)).candidate);
}

std::vector<std::string> to_reference(const RenameMap& map, const std::string& id) {
  return names_of(map.find(Names::kCandidate, renamed_id(id)).reference);
}

std::string refusal_of_map(const std::string& text) {
  try {
    static_cast<void>(RenameMap::parse(text, "plain.yaml"));
  } catch (const UsageError& error) {
    return error.message();
  }
  return "accepted";
}

TEST(RenameMap, PutsWhatStarsStandForIntoTheOtherName) {
  const RenameMap map = RenameMap::parse(R"yaml(
tensors:
  - {reference: "h_*.mlp.experts.*", candidate: "decoder.layers.*.moe.local_*"}
)yaml");
  EXPECT_THAT(to_candidate(map, "s0/m1/output/h_12.mlp.experts.3/0"),
              ElementsAre("s0/m1/output/decoder.layers.12.moe.local_3/0"));
  EXPECT_THAT(to_reference(map, "s0/m1/output/decoder.layers.12.moe.local_3/0"),
              ElementsAre("s0/m1/output/h_12.mlp.experts.3/0"));
}

TEST(RenameMap, CarriesWhatLiesBelowAPathAlong) {
  const RenameMap map = RenameMap::parse(R"yaml(
tensors:
  - {reference: "layers.*.wo", candidate: "decoder.layers.*.linear_proj"}
  - {reference: "layers.*", candidate: "decoder.layers.*"}
)yaml");
  EXPECT_THAT(to_candidate(map, "s0/param/layers.2.wo.weight/0"),
              ElementsAre("s0/param/decoder.layers.2.linear_proj.weight/0"));
  EXPECT_THAT(to_candidate(map, "s0/m0/output/layers.2/0#1~"),
              ElementsAre("s0/m0/output/decoder.layers.2/0#1~"));
  EXPECT_THAT(to_candidate(map, "s0/m0/output/layers.2.more.below/0"),
              ElementsAre("s0/m0/output/decoder.layers.2.more.below/0"));
}

TEST(RenameMap, KeepsTheNameOfWhatNoEntryMatches) {
  const RenameMap map = RenameMap::parse("tensors: [{reference: norm, candidate: final_norm}]");
  const Counterparts same = map.find(Names::kReference, renamed_id("s0/m0/output/layers.0.norm/0"));
  EXPECT_FALSE(same.rule.has_value());
  EXPECT_THAT(names_of(same.candidate), ElementsAre("s0/m0/output/layers.0.norm/0"));
  EXPECT_THAT(to_candidate(map, "s0/m0/output/normal/0"), ElementsAre("s0/m0/output/normal/0"));
}

TEST(RenameMap, TakesTheFirstEntryOfTheKindAndSlot) {
  const RenameMap map = RenameMap::parse(R"yaml(
tensors:
  - {reference: a/1, candidate: b/0}
  - {reference: a, candidate: ~, kinds: [input, grad_input]}
  - {reference: a, candidate: c}
  - {reference: a, candidate: never}
)yaml");
  EXPECT_THAT(to_candidate(map, "s0/m0/output/a/1"), ElementsAre("s0/m0/output/b/0"));
  EXPECT_THAT(to_candidate(map, "s0/m0/output/a/0"), ElementsAre("s0/m0/output/c/0"));
  EXPECT_THAT(to_candidate(map, "s0/m0/input/a/0"), IsEmpty());
  EXPECT_THAT(to_reference(map, "s0/m0/output/b/0"), ElementsAre("s0/m0/output/a/1"));
  // A slot is the module's own: what lies below is matched by the next entry.
  EXPECT_THAT(to_candidate(map, "s0/m0/output/a.x/1"), ElementsAre("s0/m0/output/c.x/1"));
}

TEST(RenameMap, KnowsTheOtherPartsOfATensor) {
  const RenameMap map = RenameMap::parse(R"yaml(
tensors:
  - reference: ["layers.*.wq", "layers.*.wk", "layers.*.wv"]
    candidate: decoder.layers.*.linear_qkv
    groups: 2
    ratio: [4, 1, 1]
)yaml");
  const Counterparts from_part =
      map.find(Names::kReference, renamed_id("s0/main_grad/layers.1.wk.bias/0"));
  EXPECT_THAT(names_of(from_part.reference),
              ElementsAre("s0/main_grad/layers.1.wq.bias/0",
                          "s0/main_grad/layers.1.wk.bias/0",
                          "s0/main_grad/layers.1.wv.bias/0"));
  EXPECT_THAT(names_of(from_part.candidate),
              ElementsAre("s0/main_grad/decoder.layers.1.linear_qkv.bias/0"));
  const Counterparts from_whole =
      map.find(Names::kCandidate, renamed_id("s0/main_grad/decoder.layers.1.linear_qkv.bias/0"));
  EXPECT_EQ(names_of(from_whole.reference), names_of(from_part.reference));
  EXPECT_EQ(map.fusion(0).groups, 2);
  EXPECT_THAT(map.fusion(0).ratio, ElementsAre(4, 1, 1));
}

TEST(RenameMap, FindsDimsByKindAndNumberOfDimensionsTheEntrysOwnFirst) {
  const RenameMap map = RenameMap::parse(R"yaml(
tensors:
  - reference: core
    candidate: core
    dims: [{kinds: [output], reference: "b n s d=16", candidate: "s b (n*d)"}]
dims:
  - {kinds: activations, reference: "b s h", candidate: "s b h"}
)yaml");
  const Counterparts core = map.find(Names::kReference, renamed_id("s0/m0/output/core/0"));
  const DimsPair* own = map.dims(core, Kind::kOutput, Names::kReference, 4);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(to_string(own->candidate), "s b (n*d=16)") << "a size holds on both sides";
  EXPECT_EQ(map.dims(core, Kind::kOutput, Names::kCandidate, 3), own);
  const DimsPair* general = map.dims(core, Kind::kOutput, Names::kReference, 3);
  ASSERT_NE(general, nullptr);
  EXPECT_EQ(to_string(general->reference), "b s h");
  EXPECT_EQ(map.dims(core, Kind::kParam, Names::kReference, 3), nullptr);
  EXPECT_EQ(map.dims(core, Kind::kOutput, Names::kReference, 2), nullptr);
}

TEST(RenameMap, SaysWhereItsFileIsWrong) {
  struct Case {
    std::string text, expected;
  };
  const std::vector<Case> cases = {
      {"names: []", "plain.yaml:1: unknown key \"names\"; known here: tensors, dims"},
      {"tensors:\n- {reference: a}",
       "plain.yaml:2: an entry of tensors needs reference and candidate"},
      {"tensors:\n- {reference: a, candidate: b, to: c}", "plain.yaml:2: unknown key \"to\""},
      {"tensors:\n- {reference: ~, candidate: ~}",
       "plain.yaml:2: reference and candidate cannot both"},
      {"tensors:\n- {reference: 'a.*', candidate: b}", "the same number of *"},
      {"tensors:\n- {reference: 'a.**', candidate: 'b.**'}", "\"a.**\" is not a path"},
      {"tensors:\n- {reference: 'a..b', candidate: b}", "\"a..b\" is not a path"},
      {"tensors:\n- {reference: 'a/x', candidate: b}", "\"x\" is not a slot"},
      {"tensors:\n- {reference: 'a/1', candidate: b}", "either all paths of an entry name a slot"},
      {"tensors:\n- {reference: [a], candidate: b}", "at least two parts"},
      {"tensors:\n- {reference: [a, b], candidate: [c, d]}", "only one side can have parts"},
      {"tensors:\n- {reference: a, candidate: b, groups: 2}", "groups and ratio need a tensor"},
      {"tensors:\n- {reference: [a, b], candidate: c, groups: 0}",
       "groups must be a number from 1 to"},
      {"tensors:\n- {reference: [a, b], candidate: c, ratio: [1]}",
       "ratio has 1 numbers, but there are 2 parts"},
      {"tensors:\n- {reference: a, candidate: b, kinds: [weight]}", "plain.yaml:2:"},
      {"dims:\n- {reference: s b, candidate: b s}", "plain.yaml:2: an entry of dims needs kinds"},
      {"dims:\n- {kinds: [output], reference: s b, candidate: b}", "\"s\" occurs on one side only"},
      {"dims:\n- {kinds: [output], reference: s b b, candidate: b s}", "\"b\" occurs twice"},
      {"dims:\n- {kinds: [output], reference: 'h[tp]', candidate: h}",
       "must not name axes of ranks"},
      {"dims:\n- {kinds: [output], reference: 's n d', candidate: 's (n*d)'}",
       "all factors of a dimension but one need a size"},
      {"dims:\n- {kinds: [output], reference: 'h=2', candidate: 'h=3'}",
       "\"h\" has two different sizes"},
      {"tensors: [", "plain.yaml:"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(refusal_of_map(each.text), HasSubstr(each.expected)) << each.text;
  }
}

TEST(RenameMap, NamesAFileThatCannotBeRead) {
  const testing::TemporaryDirectory folder;
  try {
    static_cast<void>(RenameMap::load(folder / "none.yaml"));
    FAIL() << "it was read";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("none.yaml; check the path"));
  }
}

}  // namespace
}  // namespace ttrace
