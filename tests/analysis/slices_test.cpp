#include "analysis/checks/slices.h"

#include "analysis/bounds/limits.h"
#include "analysis/checks/shard_sums.h"
#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/report_json.h"
#include "support/temporary_directory.h"
#include "support/tensor_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kOutput;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

TEST(SumGroups, RunsOfSlicesAreAdded) {
  std::vector<SliceSums> slices(6);
  for (int i = 0; i < 6; ++i) {
    slices[static_cast<std::size_t>(i)] = {1, 1.0, static_cast<double>(i), 0.5, -1.0};
  }
  const std::vector<SliceSums> groups = sum_groups(slices, 3);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].difference_squared, 3.0);
  EXPECT_EQ(groups[1].difference_squared, 12.0);
  EXPECT_EQ(groups[1].count, 3);
  EXPECT_EQ(groups[1].along_reference, 1.5);
  EXPECT_EQ(groups[1].difference, -3.0);
}

// The squared errors of columns whose tokens err alike, three errors each, of two runs that are
// both right. Symptom: with --noise 0, five of five right layouts were accused of one column of a
// row-parallel layer, because a column was taken for as many errors as it has tokens.
TEST(WorstSlice, ColumnsThatAverageFewErrorsAreWithinBoundWithoutNoisePasses) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 192;
  constexpr std::int64_t kErrors = 3;
  const auto errors = [](unsigned seed) {
    const std::vector<double> each = testing::normal_values(kErrors * kColumns, seed);
    std::vector<double> all;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto first = each.begin() + row * kErrors / kRows * kColumns;
      all.insert(all.end(), first, first + kColumns);
    }
    return all;
  };
  const std::vector<double> zero(static_cast<std::size_t>(kRows * kColumns));
  const std::vector<std::int64_t> shape = {kRows, kColumns};
  const std::vector<double> found = errors(1);
  const std::vector<double> measured = errors(2);
  const TensorPair pair{shape, ElementType::kF64, zero.data(), ElementType::kF64, found.data()};
  TensorNoise noise;
  noise.passes = 1;
  for (const SliceSums& slice :
       sum_slices({shape, ElementType::kF64, zero.data(), ElementType::kF64, measured.data()})
           .sums) {
    noise.slices.push_back(slice.difference_squared);
  }
  noise.mean_squared = std::inner_product(measured.begin(), measured.end(), measured.begin(), 0.0);
  SliceBound bound{.noise = &noise};
  bound.spread.kernel_factor = 1.5;
  bound.spread.freedom = 500.0;
  bound.spread.by_chance = 1e-6;
  bound.freedom = error_freedom(sum_slices(pair), noise.slices);
  const auto worst = worst_slice(pair, sum_slices(pair), {bound, {}, 0});
  ASSERT_TRUE(worst);
  EXPECT_FALSE(worst->beyond()) << worst->where << ' ' << worst->q << ' ' << worst->ratio.value;
}

Placement placed(std::vector<DimPlacement> dims) {
  Placement placement;
  placement.dims = std::move(dims);
  return placement;
}

constexpr std::int64_t kSlicedRows = 8;
constexpr std::int64_t kSlicedColumns = 6;

// r is 0 and c is the element's position, so the sums show which elements are included.
class SumShards : public ::testing::Test {
 protected:
  SumShards() {
    for (std::size_t i = 0; i < candidate_.size(); ++i) {
      candidate_[i] = static_cast<double>(i);
    }
  }
  void add(Placement placement) {
    records_.push_back(std::make_unique<Record>());
    records_.back()->placement = std::move(placement);
    shards_.push_back({static_cast<int>(shards_.size()), records_.back().get(), {}});
  }
  std::vector<ShardSums> run() const {
    const TensorPair pair{
        shape_, ElementType::kF64, reference_.data(), ElementType::kF64, candidate_.data()};
    return sum_shards(pair, sum_slices(pair), shards_);
  }

  std::vector<std::int64_t> shape_{kSlicedRows, kSlicedColumns};
  std::vector<double> reference_ = std::vector<double>(kSlicedRows * kSlicedColumns);
  std::vector<double> candidate_ = std::vector<double>(kSlicedRows * kSlicedColumns);
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<Shard> shards_;
};

TEST_F(SumShards, ZigzagRowsOfOneRankAreOneShard) {
  add(placed({{4, kSlicedRows, {{0, 0, 2}, {2, 6, 2}}},
              {kSlicedColumns, kSlicedColumns, {{0, 0, kSlicedColumns}}}}));
  const auto shards = run();
  ASSERT_EQ(shards.size(), 1U);
  double expected = 0.0;
  for (const int row : {0, 1, 6, 7}) {
    for (int column = 0; column < kSlicedColumns; ++column) {
      expected += static_cast<double>(row * kSlicedColumns + column);
    }
  }
  EXPECT_EQ(shards[0].sums.count, 4 * kSlicedColumns);
  EXPECT_EQ(shards[0].sums.difference, expected);
}

TEST_F(SumShards, ReplicasAndAddendsOfOneRegionAreOne) {
  Placement left =
      placed({{kSlicedRows, kSlicedRows, {{0, 0, kSlicedRows}}}, {3, kSlicedColumns, {{0, 0, 3}}}});
  const Placement right =
      placed({{kSlicedRows, kSlicedRows, {{0, 0, kSlicedRows}}}, {3, kSlicedColumns, {{0, 3, 3}}}});
  add(left);
  add(right);
  left.partial_count = 2;
  left.partial_index = 1;
  add(left);
  const auto shards = run();
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_THAT(shards[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(shards[1].ranks, ElementsAre(1));
  EXPECT_EQ(shards[0].sums.count, kSlicedRows * 3);
  EXPECT_EQ(shards[1].sums.difference - shards[0].sums.difference, 3.0 * kSlicedRows * 3);
}

TEST_F(SumShards, AFlatRangeHoldsItsElements) {
  Placement flat = whole(shape_);
  flat.flat = FlatRange{4, 11};
  add(flat);
  const auto shards = run();
  EXPECT_EQ(shards.at(0).sums.count, 11);
  EXPECT_EQ(shards.at(0).sums.difference, 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + 13 + 14);
}

constexpr auto kAttention = "s0/m0/output/self_attention.core_attention/0";

// A tensor [64, 128] on eight ranks that hold 16 of its columns each; noise passes moved every
// element by kNoise, independently of the others. A head is 32 columns. Other tensors of its kind
// tell how noise varies from pass to pass.
class SliceVerdict : public ::testing::Test {
 protected:
  static constexpr std::int64_t kS = 64;
  static constexpr std::int64_t kH = 128;
  static constexpr double kNoise = 1e-3;

  explicit SliceVerdict(std::string id = kOutput) : id_(std::move(id)) {}

  static constexpr int kRanks = 8;
  static constexpr std::int64_t kPart = kH / kRanks;

  static Tensor part_of(const std::string& id, const std::vector<double>& all, int rank) {
    Tensor tensor{id, {}, ElementType::kF32, {kS, kPart}, {}};
    for (std::int64_t row = 0; row < kS; ++row) {
      const auto begin = all.begin() + row * kH + rank * kPart;
      tensor.values.insert(tensor.values.end(), begin, begin + kPart);
    }
    tensor.placement = placed({{kS, kS, {{0, 0, kS}}}, {kPart, kH, {{0, rank * kPart, kPart}}}});
    return tensor;
  }
  NoiseRow noise() const {
    NoiseRow row = testing::noise_row(id_, kNoise * std::sqrt(kS * kH), kNoise);
    if (with_slices_) {
      row.along_reference = along_;
      row.slices.assign(kS, kNoise * kNoise * kH);
      row.slices.insert(row.slices.end(), kH, kNoise * kNoise * kS);
    }
    return row;
  }
  std::vector<std::string> others() const {
    std::vector<std::string> ids;
    for (int number = 0; number < 200; ++number) {
      ids.push_back("s0/m0/output/other." + std::to_string(number) + "/0");
    }
    return ids;
  }
  void write_noise() const {
    for (int seed = 1; seed <= 5; ++seed) {
      NoisePass pass{seed, {testing::as_pass(noise(), {kS, kH}, seed)}};
      for (const std::string& id : others()) {
        NoiseRow row = testing::noise_row(id, 1e-3, 1e-3);
        row.along_reference = with_slices_ ? std::optional(along_) : std::nullopt;
        row.slices.assign(with_slices_ ? 4 : 0, 2.5e-7);
        pass.rows.push_back(testing::as_pass(row, {kS, kH}, seed));
      }
      ttrace::write_noise(directory_ / "reference", pass);
    }
  }
  // The first tensor's verdict. `candidate` plants an error in addition to a rounding error
  // everywhere.
  TensorVerdict verdict(std::vector<double> candidate) {
    const std::vector<double> all = wavy(kS * kH);
    for (std::size_t i = 0; i < all.size(); ++i) {
      candidate[i] += all[i] + (i % 2 == 0 ? 1 : -1) * kNoise / 2;
    }
    reference_.manifest.model = candidate_.manifest.model = {{"hidden", "128"}, {"heads", "4"}};
    reference_.add(0, {id_, all, ElementType::kF32, {kS, kH}, {}});
    for (int rank = 0; rank < kRanks; ++rank) {
      candidate_.add(rank, part_of(id_, candidate, rank));
    }
    for (const std::string& id : others()) {
      reference_.add(0, {id, wavy(4), ElementType::kF32, {2, 2}, {}});
      candidate_.add_everywhere({id, wavy(4), ElementType::kF32, {2, 2}, {}});
    }
    const Trace reference = reference_.write();
    write_noise();
    report_ = diff(reference, candidate_.write());
    const auto found = std::ranges::find_if(
        report_.tensors, [&](const TensorVerdict& each) { return to_string(each.id) == id_; });
    return *found;
  }
  static std::vector<double> nothing() { return std::vector<double>(kS * kH); }
  // Errors of `times` the noise, with signs that change from row to row, so that they are not a
  // factor.
  static void add_to_columns(std::vector<double>& values,
                             std::int64_t begin,
                             std::int64_t end,
                             double times) {
    for (std::int64_t row = 0; row < kS; ++row) {
      for (std::int64_t column = begin; column < end; ++column) {
        values[static_cast<std::size_t>(row * kH + column)] +=
            (row % 4 < 2 ? 1 : -1) * times * kNoise;
      }
    }
  }
  // About what chance explains: of a row of 128 elements and a column of 64, of a rank's part of
  // 1024, of a head of 2048.
  static constexpr double kOfSlice = 1.7;
  static constexpr double kOfPart = 1.2;
  static constexpr double kOfHead = 1.15;

  std::string id_;
  bool with_slices_ = true;
  double along_ = 1e-3;
  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", kRanks};
  Report report_;
};

TEST_F(SliceVerdict, RoundingErrorsEverywhereAreWithinBound) {
  const TensorVerdict tensor = verdict(nothing());
  EXPECT_EQ(tensor.status(), Status::kWithin);
  ASSERT_NE(tensor.find(Question::kPart), nullptr);
  EXPECT_NEAR(tensor.find(Question::kPart)->term(Term::kQ), 0.5, 0.01);
  EXPECT_TRUE(tensor.find(Question::kPart)->holds);
}

TEST_F(SliceVerdict, OneWrongRowIsFoundThoughTheTensorIsWithinBound) {
  std::vector<double> wrong = nothing();
  for (std::int64_t column = 0; column < kH; ++column) {
    wrong[static_cast<std::size_t>(5 * kH + column)] = 1.15 * kOfSlice * kNoise;
  }
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  EXPECT_EQ(tensor.tier(), Tier::kT2);
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_THAT(tensor.cause(),
              AllOf(HasSubstr("rows 5:6 of dimension 0, held by ranks 0-7, differs 1."),
                    HasSubstr("within its bound")));
  EXPECT_NEAR(tensor.find(Question::kPart)->term(Term::kQ), 1.15 * kOfSlice, 0.3);

  std::ostringstream text;
  write_text(text, report_, {});
  EXPECT_THAT(text.str(), HasSubstr("\n  part       rows 5:6 of dimension 0: error "));
  std::ostringstream json;
  write_json(json, report_);
  const auto parsed = nlohmann::json::parse(json.str());
  EXPECT_EQ(parsed["first_divergence"]["symptom"], "slice_out_of_bound");
  const auto& tensors = parsed["tensors"];
  const auto first =
      std::ranges::find_if(tensors, [](const auto& each) { return each["id"] == kOutput; });
  const auto part = testing::asked(*first, "slice");
  EXPECT_EQ(part["where"], "rows 5:6 of dimension 0");
  EXPECT_EQ(part["ranks"], nlohmann::json({0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(SliceVerdict, NeighbouringSlicesAreNamedTogetherWithTheRankThatHoldsThem) {
  std::vector<double> wrong = nothing();
  for (std::int64_t row = 0; row < kS; ++row) {
    wrong[static_cast<std::size_t>(row * kH + 68)] = 1.3 * kOfSlice * kNoise;
    wrong[static_cast<std::size_t>(row * kH + 69)] = -1.2 * kOfSlice * kNoise;
  }
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_EQ(tensor.find(Question::kPart)->place.where, "rows 68:70 of dimension 1");
  EXPECT_THAT(tensor.ranks(), ElementsAre(4));
}

TEST_F(SliceVerdict, AShardIsNamedWhereTheErrorIsSpreadOverIt) {
  std::vector<double> wrong = nothing();
  add_to_columns(wrong, 112, 128, 1.3 * kOfPart);
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_THAT(tensor.cause(), HasSubstr("the shard of rank 7 differs 1."));
  EXPECT_THAT(tensor.ranks(), ElementsAre(7));
}

// Noise tables of before slices were stored.
TEST_F(SliceVerdict, WithoutNoiseOfSlicesNoneIsJudged) {
  with_slices_ = false;
  std::vector<double> wrong = nothing();
  for (std::int64_t column = 0; column < kH; ++column) {
    wrong[static_cast<std::size_t>(5 * kH + column)] = 1.15 * kOfSlice * kNoise;
  }
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_EQ(tensor.status(), Status::kWithin);
  EXPECT_EQ(tensor.find(Question::kPart), nullptr);
  EXPECT_EQ(tensor.find(Question::kFactor), nullptr);
}

TEST_F(SliceVerdict, AFactorThatNoPassMovesIsFoundThoughTheTensorIsWithinBound) {
  std::vector<double> wrong = wavy(kS * kH);
  for (double& value : wrong) {
    value *= 1.2e-3;
  }
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kFactor);
  EXPECT_NEAR(tensor.find(Question::kFactor)->value, 1.2e-3, 1e-4);
  EXPECT_THAT(tensor.cause(), HasSubstr("candidate = (1 + 0.0012"));
}

TEST_F(SliceVerdict, AFactorThatPassesHadAsWellIsWithinBound) {
  double reference = 0.0;
  for (const double value : wavy(kS * kH)) {
    reference += value * value;
  }
  along_ = 1.2e-3 * reference;
  std::vector<double> wrong = wavy(kS * kH);
  for (double& value : wrong) {
    value *= 1.2e-3;
  }
  EXPECT_EQ(verdict(wrong).status(), Status::kWithin);
}

class HeadVerdict : public SliceVerdict {
 protected:
  HeadVerdict() : SliceVerdict(kAttention) {}
};

TEST_F(HeadVerdict, AHeadIsNamedWhereTheErrorIsSpreadOverIt) {
  std::vector<double> wrong = nothing();
  add_to_columns(wrong, 32, 64, 1.4 * kOfHead);
  const TensorVerdict tensor = verdict(wrong);
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_EQ(tensor.find(Question::kPart)->place.where, "head 1, 32:64 of dimension 1");
  EXPECT_THAT(tensor.ranks(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace ttrace
