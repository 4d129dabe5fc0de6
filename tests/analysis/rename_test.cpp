// Traces in the names of the other program: what is written, and that nothing is lost on the way.
#include "analysis/rename/rename.h"

#include "analysis/align/matching.h"
#include "analysis/rename/rearrange.h"
#include "analysis/rename/rename_noise.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

// Two groups of two heads of queries, a key and a value; gate and up; a linear that keeps [in,
// out].
constexpr auto kMap = R"(
tensors:
  - {reference: "layers.*.rope", candidate: ~}
  - {reference: ~, candidate: "blocks.*.dropout"}
  - reference: ["layers.*.q", "layers.*.k", "layers.*.v"]
    candidate: blocks.*.qkv
    groups: 2
    ratio: [2, 1, 1]
  - reference: ["layers.*.gate", "layers.*.up"]
    candidate: blocks.*.fc1
  - reference: layers.*.down
    candidate: blocks.*.fc2
    dims: [{kinds: parameters, reference: "in out", candidate: "out in"}]
  - {reference: "layers.*", candidate: "blocks.*"}
dims:
  - {kinds: activations, reference: "b s h", candidate: "s b h"}
)";

std::vector<double> counted_from(double first, std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Every logical tensor of a trace.
std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<double>>> tensors_in(
    const std::string& folder) {
  std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<double>>> result;
  const Trace trace = Trace::open(folder);
  for (const Match& tensor : tensors_of(trace)) {
    const MergeResult merged = merge(tensor.reference);
    std::vector<double> values(static_cast<std::size_t>(element_count(merged.shape)));
    to_double(
        merged.type, merged.bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
    result[to_string(tensor.id)] = {merged.shape, std::move(values)};
  }
  return result;
}

class Rename : public ::testing::Test {
 protected:
  // Weights [4 2], [2 2], [2 2] of queries, keys and values, and what they return for one sample of
  // two positions.
  void add_attention() {
    plain_.add(0, {"s0/param/layers.0.q.weight/0", counted_from(0, 8), ElementType::kF32, {4, 2}});
    plain_.add(0, {"s0/param/layers.0.k.weight/0", counted_from(10, 4), ElementType::kF32, {2, 2}});
    plain_.add(0, {"s0/param/layers.0.v.weight/0", counted_from(20, 4), ElementType::kF32, {2, 2}});
    plain_.add(0, {"s0/m0/output/layers.0.q/0", counted_from(0, 8), ElementType::kF32, {1, 2, 4}});
    plain_.add(0, {"s0/m0/output/layers.0.k/0", counted_from(10, 4), ElementType::kF32, {1, 2, 2}});
    plain_.add(0, {"s0/m0/output/layers.0.v/0", counted_from(20, 4), ElementType::kF32, {1, 2, 2}});
  }

  RenameResult rename(const std::string& from,
                      const std::string& to,
                      Names names = Names::kCandidate,
                      const std::string& map = kMap) {
    return rename_trace(folder_ / from,
                        folder_ / to,
                        RenameMap::parse(map, "plain.yaml"),
                        {.to = names, .forced_routing = {}, .progress = {}});
  }

  std::string refusal(const std::string& map = kMap) {
    static_cast<void>(plain_.write());
    try {
      static_cast<void>(rename("plain", "renamed", Names::kCandidate, map));
    } catch (const UsageError& error) {
      return error.message();
    }
    return "accepted";
  }

  TemporaryDirectory folder_;
  TraceBuilder plain_{folder_ / "plain", "reference"};
};

TEST_F(Rename, PutsPartsTogetherPerQueryGroupAlongRowsAndLastDimensions) {
  add_attention();
  static_cast<void>(plain_.write());
  const RenameResult result = rename("plain", "renamed");
  EXPECT_EQ(result.tensors, 2U);
  const auto tensors = tensors_in(folder_ / "renamed");
  ASSERT_EQ(tensors.size(), 2U);
  const auto& [weight_shape, weight] = tensors.at("s0/param/blocks.0.qkv.weight/0");
  EXPECT_THAT(weight_shape, ElementsAre(8, 2));
  EXPECT_THAT(weight, ElementsAre(0, 1, 2, 3, 10, 11, 20, 21, 4, 5, 6, 7, 12, 13, 22, 23));
  const auto& [output_shape, output] = tensors.at("s0/m0/output/blocks.0.qkv/0");
  EXPECT_THAT(output_shape, ElementsAre(2, 1, 8));
  EXPECT_THAT(output, ElementsAre(0, 1, 10, 20, 2, 3, 11, 21, 4, 5, 12, 22, 6, 7, 13, 23));
}

TEST_F(Rename, StacksPartsWithoutGroups) {
  plain_.add(0, {"s0/main_grad/layers.0.gate.bias/0", {1, 2}});
  plain_.add(0, {"s0/main_grad/layers.0.up.bias/0", {3, 4}});
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  EXPECT_THAT(tensors_in(folder_ / "renamed").at("s0/main_grad/blocks.0.fc1.bias/0").second,
              ElementsAre(1, 2, 3, 4));
}

TEST_F(Rename, TransposesByKind) {
  plain_.add(0,
             {"s0/exp_avg/layers.0.down.weight/0", counted_from(0, 6), ElementType::kF32, {2, 3}});
  plain_.add(0, {"s0/m0/output/layers.0.down/0", counted_from(0, 6), ElementType::kF32, {3, 2, 1}});
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  const auto tensors = tensors_in(folder_ / "renamed");
  EXPECT_THAT(tensors.at("s0/exp_avg/blocks.0.fc2.weight/0").first, ElementsAre(3, 2));
  EXPECT_THAT(tensors.at("s0/exp_avg/blocks.0.fc2.weight/0").second, ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(tensors.at("s0/m0/output/blocks.0.fc2/0").first, ElementsAre(2, 3, 1));
  EXPECT_THAT(tensors.at("s0/m0/output/blocks.0.fc2/0").second, ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST_F(Rename, ThereAndBackGivesTheSameBytes) {
  add_attention();
  for (const char* part : {"gate", "up"}) {
    plain_.add(0,
               {"s0/exp_avg_sq/layers.3." + std::string(part) + ".weight/0",
                wavy(12),
                ElementType::kBF16,
                {3, 4}});
  }
  plain_.add(0, {"s0/param/layers.0.down.weight/0", wavy(6), ElementType::kF64, {2, 3}});
  plain_.add(0, {"s0/m0/grad_output/layers.0.norm/0", wavy(24), ElementType::kF16, {2, 3, 4}});
  plain_.add(0, {"s0/m0/data/tokens/0", {3, 1, 2}, ElementType::kI64});
  const Trace before = plain_.write();
  rename("plain", "there");
  // The renamed trace says that it is renamed. Without this mark, as a program's own trace, it can
  // be renamed back.
  Manifest manifest = read_manifest(folder_ / "there");
  EXPECT_EQ(manifest.names, "candidate");
  manifest.names.clear();
  write_manifest(folder_ / "there", manifest);
  rename("there", "back", Names::kReference);

  const Trace after = Trace::open(folder_ / "back");
  std::map<TensorId, std::uint64_t> digests;
  for (const Record& record : before.steps()[0].ranks[0].records()) {
    digests[record.id] = record.digest;
  }
  std::map<TensorId, std::uint64_t> found;
  for (const Record& record : after.steps()[0].ranks[0].records()) {
    found[record.id] = record.digest;
  }
  EXPECT_EQ(found, digests);
}

TEST_F(Rename, KeepsTheOrderInWhichTheProgramRan) {
  plain_.add(0, {"s0/m0/output/layers.0.norm/0", {1}});
  plain_.add(0, {"s0/m0/output/layers.0.up/0", {2, 3}});
  plain_.add(0, {"s0/m0/output/layers.0.other/0", {1}});
  plain_.add(0, {"s0/m0/output/layers.0.gate/0", {4, 5}});
  plain_.add(0, {"s0/m0/output/layers.0.last/0", {1}});
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  std::vector<std::string> ids;
  const Trace trace = Trace::open(folder_ / "renamed");
  for (const Match& match : tensors_of(trace)) {
    ids.push_back(to_string(match.id));
  }
  EXPECT_THAT(ids,
              ElementsAre("s0/m0/output/blocks.0.norm/0",
                          "s0/m0/output/blocks.0.other/0",
                          "s0/m0/output/blocks.0.fc1/0",
                          "s0/m0/output/blocks.0.last/0"));
}

TEST_F(Rename, PutsTheRanksPartsTogetherFirst) {
  TraceBuilder parallel(folder_ / "parallel", "candidate", 2);
  for (int rank = 0; rank < 2; ++rank) {
    parallel.add(rank,
                 {"s0/main_grad/blocks.0.fc1.bias/0",
                  counted_from(2.0 * rank, 2),
                  ElementType::kF32,
                  {2},
                  testing::part(4, rank, 2)});
    Placement addend = whole(std::vector<std::int64_t>{1});
    addend.partial_index = rank;
    addend.partial_count = 2;
    parallel.add(rank,
                 {"s0/main_grad/blocks.0.norm.bias/0", {0.5}, ElementType::kBF16, {1}, addend});
    parallel.note(rank, "late");
    parallel.not_seen(rank, NotSeenKind::kUpdates, "no optimizer");
  }
  static_cast<void>(parallel.write());
  rename("parallel", "renamed", Names::kReference);
  const auto tensors = tensors_in(folder_ / "renamed");
  EXPECT_THAT(tensors.at("s0/main_grad/layers.0.gate.bias/0").second, ElementsAre(0, 1));
  EXPECT_THAT(tensors.at("s0/main_grad/layers.0.up.bias/0").second, ElementsAre(2, 3));
  EXPECT_THAT(tensors.at("s0/main_grad/layers.0.norm.bias/0").second, ElementsAre(1.0));
  const Trace trace = Trace::open(folder_ / "renamed");
  EXPECT_EQ(trace.steps()[0].ranks[0].records().back().type, ElementType::kBF16)
      << "as the ranks recorded it";
  EXPECT_EQ(trace.manifest().world_size, 1);
  EXPECT_EQ(trace.manifest().names, "reference");
  EXPECT_THAT(trace.steps()[0].ranks[0].notes(), ElementsAre("rank 0: late", "rank 1: late"));
  EXPECT_THAT(trace.steps()[0].ranks[0].not_seen(),
              ElementsAre(NotSeen{NotSeenKind::kUpdates, "no optimizer"}));
}

TEST_F(Rename, LeavesOutWhatTheOtherSideHasNot) {
  plain_.add(0, {"s0/m0/output/layers.0.rope/0", {1, 2}});
  plain_.add(0, {"s0/m0/output/layers.0.norm/0", {1, 2}});
  static_cast<void>(plain_.write());
  const RenameResult result = rename("plain", "renamed");
  EXPECT_EQ(result.only_here, 1U);
  EXPECT_EQ(tensors_in(folder_ / "renamed").size(), 1U);
}

TEST_F(Rename, GivesAModuleWithPartsTheInputOfAnyOfThem) {
  plain_.add(0, {"s0/m0/input/layers.0.gate/0", {1, 2}});
  plain_.add(0, {"s0/m0/input/layers.0.up/0", {1, 2}});
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  EXPECT_THAT(tensors_in(folder_ / "renamed").at("s0/m0/input/blocks.0.fc1/0").second,
              ElementsAre(1, 2));
}

TEST_F(Rename, CarriesEdgesOver) {
  plain_.add(0, {"s0/m0/output/layers.0.norm/0", {1, 2}});
  plain_.add(0, {"s0/m0/output/layers.0.gate/0", {1, 2}});
  plain_.add(0, {"s0/m0/output/layers.0.up/0", {1, 2}});
  plain_.edge(0, "s0/m0/input/layers.0.gate/0", "s0/m0/output/layers.0.norm/0");
  plain_.edge(0, "s0/m0/input/layers.0.up/0", "s0/m0/output/layers.0.norm/0");
  plain_.edge(0, "s0/m0/input/layers.0.act/0", "s0/m0/output/layers.0.gate/0");
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  const Trace trace = Trace::open(folder_ / "renamed");
  const auto& edges = trace.steps()[0].ranks[0].edges();
  ASSERT_EQ(edges.size(), 1U) << "of both parts one, and none from a part";
  EXPECT_EQ(to_string(edges[0].consumer), "s0/m0/input/blocks.0.fc1/0");
  EXPECT_EQ(to_string(edges[0].producer), "s0/m0/output/blocks.0.norm/0");
}

TEST_F(Rename, RenamesStartParametersAndWritesTheMapBesideThem) {
  add_attention();
  static_cast<void>(plain_.write());
  {
    TraceWriter writer(start_file(folder_ / "plain", 0), Layout());
    std::uint64_t order = 0;
    for (const char* part : {"gate", "up"}) {
      Record record;
      record.id = parse_tensor_id("s0/param/layers.0." + std::string(part) + ".bias/0");
      record.shape = {1};
      record.placement = whole(record.shape);
      record.order = ++order;
      const std::vector<float> values{static_cast<float>(order)};
      writer.append(record, std::as_bytes(std::span(values)));
    }
    writer.commit();
  }
  rename("plain", "renamed");
  const RankFile start(start_file(folder_ / "renamed", 0));
  ASSERT_EQ(start.records().size(), 1U);
  EXPECT_EQ(to_string(start.records()[0].id), "s0/param/blocks.0.fc1.bias/0");
  EXPECT_THAT(start.records()[0].shape, ElementsAre(2));
  EXPECT_EQ(map_of(folder_ / "renamed").rule_count(), 6U);
}

TEST_F(Rename, WarnsOfEntriesThatMatchNothingAndOfLonelyParts) {
  plain_.add(0, {"s0/main_grad/layers.0.gate.bias/0", {1, 2}});
  static_cast<void>(plain_.write());
  const RenameResult result = rename("plain", "renamed");
  EXPECT_THAT(result.warnings,
              AllOf(Contains("plain.yaml:3: no tensor of the reference matches this entry"),
                    Contains(HasSubstr("plain.yaml:9: the trace has 1 part of a tensor without its "
                                       "other parts; the first is s0/main_grad/layers.0.gate")),
                    Not(Contains(HasSubstr("plain.yaml:4: no tensor")))));
  EXPECT_EQ(tensors_in(folder_ / "renamed").count("s0/main_grad/layers.0.gate.bias/0"), 1U);
}

TEST_F(Rename, RefusesTwoTensorsOfOneName) {
  plain_.add(0, {"s0/m0/output/a/0", {1}}).add(0, {"s0/m0/output/b/0", {1}});
  EXPECT_THAT(
      refusal("tensors: [{reference: a, candidate: b}]"),
      AllOf(HasSubstr("plain.yaml"),
            HasSubstr("s0/m0/output/b/0 and s0/m0/output/a/0 both become s0/m0/output/b/0")));
}

TEST_F(Rename, RefusesPartsOfAnotherRatio) {
  plain_.add(0, {"s0/main_grad/layers.0.q.bias/0", {1, 2}});
  plain_.add(0, {"s0/main_grad/layers.0.k.bias/0", {1, 2}});
  plain_.add(0, {"s0/main_grad/layers.0.v.bias/0", {1, 2}});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("plain.yaml:5: s0/main_grad/layers.0.q.bias/0 cannot become "
                              "s0/main_grad/blocks.0.qkv.bias/0: its parts have the sizes 2, 2, 2"),
                    HasSubstr("but their ratio should be 2 : 1 : 1")));
}

TEST_F(Rename, RefusesPartsOfOtherShapesAndGroupsThatDoNotDivide) {
  plain_.add(0, {"s0/param/layers.0.gate.weight/0", wavy(4), ElementType::kF32, {2, 2}});
  plain_.add(0, {"s0/param/layers.0.up.weight/0", wavy(6), ElementType::kF32, {2, 3}});
  EXPECT_THAT(refusal(), HasSubstr("one part is 2x2 in f32, but another is 2x3 in f32"));
  const Fusion fusion{.groups = 3, .ratio = {1, 1}};
  EXPECT_THROW(static_cast<void>(pieces_of(std::vector<std::int64_t>{4, 4}, fusion)), UsageError);
  EXPECT_THROW(static_cast<void>(part_sizes(8, fusion)), UsageError);
}

TEST_F(Rename, RefusesDimsThatAreNotTheTensors) {
  plain_.add(0, {"s0/m0/output/a/0", wavy(6), ElementType::kF32, {2, 3}});
  EXPECT_THAT(refusal("dims: [{kinds: [output], reference: \"s (n*d=2)\", candidate: \"s n d\"}]"),
              HasSubstr("its shape 2x3 does not fit the dims \"s (n*d=2)\""));
}

TEST_F(Rename, RefusesARenamedTraceAndAFolderThatHoldsSomething) {
  add_attention();
  static_cast<void>(plain_.write());
  rename("plain", "renamed");
  EXPECT_THROW(rename("renamed", "again"), UsageError);
  EXPECT_THROW(rename("plain", "renamed"), UsageError);
}

// Noise of parts put together is what noise passes would have measured of the whole.
class RenamedNoise : public ::testing::Test {
 protected:
  static ShapedNoise measured(const std::vector<std::int64_t>& shape,
                              const std::vector<double>& reference,
                              const std::vector<double>& moved) {
    const Slices slices =
        sum_slices(shape, ElementType::kF64, reference.data(), ElementType::kF64, moved.data());
    ShapedNoise noise;
    noise.shape = shape;
    noise.row.sum_squared = slices.all.difference_squared;
    noise.row.along_reference = slices.all.along_reference;
    for (const SliceSums& sums : slices.sums) {
      noise.row.slices.push_back(sums.difference_squared);
    }
    return noise;
  }

  static void expect_equal(const ShapedNoise& found, const ShapedNoise& expected) {
    EXPECT_EQ(found.shape, expected.shape);
    EXPECT_NEAR(found.row.sum_squared, expected.row.sum_squared, 1e-12);
    EXPECT_NEAR(found.row.along_reference.value(), expected.row.along_reference.value(), 1e-12);
    EXPECT_THAT(found.row.slices, Pointwise(DoubleNear(1e-12), expected.row.slices));
  }

  static MergeResult tensor(const std::vector<std::int64_t>& shape,
                            const std::vector<double>& values) {
    MergeResult result;
    result.type = ElementType::kF64;
    result.shape = shape;
    const auto bytes = std::as_bytes(std::span(values));
    result.storage.assign(bytes.begin(), bytes.end());
    result.bytes = result.storage;
    return result;
  }

  static std::vector<double> values_of(const MergeResult& tensor) {
    std::vector<double> values(tensor.bytes.size() / sizeof(double));
    to_double(
        tensor.type, tensor.bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
    return values;
  }
};

TEST_F(RenamedNoise, OfPartsIsThatOfTheWhole) {
  const Fusion fusion{.groups = 2, .ratio = {2, 1}};
  for (const std::size_t dim : {std::size_t{0}, std::size_t{2}}) {
    std::vector<std::vector<std::int64_t>> shapes(2, {4, 3, 4});
    shapes[1][dim] = 2;
    std::vector<ShapedNoise> parts;
    std::vector<MergeResult> references;
    std::vector<MergeResult> moved;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto count = static_cast<std::size_t>(element_count(shapes[i]));
      const auto r = wavy(count, 1.0 + static_cast<double>(i));
      const auto m = wavy(count, 1.1 + static_cast<double>(i));
      parts.push_back(measured(shapes[i], r, m));
      references.push_back(tensor(shapes[i], r));
      moved.push_back(tensor(shapes[i], m));
    }
    const MergeResult r = fused(references, fusion, dim);
    const ShapedNoise expected =
        measured(r.shape, values_of(r), values_of(fused(moved, fusion, dim)));
    ASSERT_FALSE(expected.row.slices.empty());
    expect_equal(fused_noise(parts, fusion, dim), expected);

    // And back: sums follow from slices.
    const auto split = split_noise(expected, fusion, dim);
    ASSERT_TRUE(split.has_value());
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR((*split)[i].row.sum_squared, parts[i].row.sum_squared, 1e-12);
      EXPECT_FALSE((*split)[i].row.along_reference.has_value());
    }
  }
}

TEST_F(RenamedNoise, OfATransposedTensorHasItsSlicesInThatOrder) {
  const std::vector<std::int64_t> shape{4, 3, 5};
  const auto r = wavy(60, 1.0);
  const auto m = wavy(60, 1.2);
  for (const auto& [from, to] : {std::pair("b s h", "s b h"), std::pair("b s h", "h b s")}) {
    const DimsSpec source = parse_dims(from);
    const DimsSpec target = parse_dims(to);
    const MergeResult moved = rearranged(tensor(shape, r), source, target);
    const ShapedNoise expected = measured(
        moved.shape, values_of(moved), values_of(rearranged(tensor(shape, m), source, target)));
    const ShapedNoise found = rearranged_noise(measured(shape, r, m), source, target, moved.shape);
    if (std::string(to) == "s b h") {
      expect_equal(found, expected);
    } else {
      // Its rows are sums of other elements, which nobody has measured.
      EXPECT_THAT(found.row.slices, IsEmpty());
      EXPECT_EQ(found.row.sum_squared, expected.row.sum_squared);
    }
  }
}

TEST_F(RenamedNoise, OfAVectorDoesNotTellItsPartsApart) {
  ShapedNoise noise;
  noise.shape = {8};
  noise.row.sum_squared = 1.0;
  const Fusion fusion{.groups = 1, .ratio = {1, 1}};
  EXPECT_FALSE(split_noise(noise, fusion, 0).has_value());
  noise.row.sum_squared = 0.0;
  EXPECT_TRUE(split_noise(noise, fusion, 0).has_value()) << "nothing moved in any part";
}

TEST_F(Rename, RenamesNoiseTables) {
  plain_.add(0, {"s0/main_grad/layers.0.gate.bias/0", {1, 2}});
  plain_.add(0, {"s0/main_grad/layers.0.up.bias/0", {3, 4}});
  static_cast<void>(plain_.write());
  testing::write_noise_passes(folder_ / "plain",
                              {testing::noise_row("s0/main_grad/layers.0.gate.bias/0", 3.0, 2.0),
                               testing::noise_row("s0/main_grad/layers.0.up.bias/0", 4.0, 1.0)},
                              2);
  rename("plain", "renamed");
  const std::vector<NoisePass> passes = read_noise(folder_ / "renamed");
  ASSERT_EQ(passes.size(), 2U);
  ASSERT_EQ(passes[1].rows.size(), 1U);
  EXPECT_EQ(to_string(passes[1].rows[0].id), "s0/main_grad/blocks.0.fc1.bias/0");
  EXPECT_EQ(passes[1].rows[0].sum_squared, 25.0);
  EXPECT_EQ(passes[1].rows[0].max_abs, 2.0);
}

}  // namespace
}  // namespace ttrace
