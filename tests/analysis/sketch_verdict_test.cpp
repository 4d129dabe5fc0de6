// Tensors of which sketches were kept are judged as a whole, by block, head and rank, and along the
// reference.
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "support/tensor_bytes.h"
#include "trace/sums/moments.h"
#include "trace/sums/sketch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A tensor [256, 256] of F32, in 16 x 16 blocks, whose noise moves elements independently of one
// another. Two ranks hold half of its columns each; a head is 64 columns.
class SketchVerdict : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSize = 256;
  static constexpr double kNoise = 1e-3;
  static constexpr int kPasses = 5;
  static constexpr int kOthers = 60;

  static std::string name_of_other(int number) {
    return "s0/m0/output/other." + std::to_string(number) + "/0";
  }
  static std::vector<double> noise(unsigned seed) {
    return normal_values(kSize * kSize, seed, kNoise);
  }
  static std::vector<double> sum(std::vector<double> left, const std::vector<double>& right) {
    std::transform(left.begin(), left.end(), right.begin(), left.begin(), std::plus<>());
    return left;
  }
  static Sketch sketch(const std::vector<double>& values) {
    const TensorAt tensor(ElementType::kF32, values);
    const auto* const first = static_cast<const std::byte*>(tensor.data());
    return sketch_of(tensor.type,
                     {first, static_cast<std::size_t>(tensor.size())},
                     whole(std::vector<std::int64_t>{kSize, kSize}));
  }
  // What a noise pass writes of a tensor whose reference is a sketch.
  static NoiseRow row_of(const std::string& id, const std::vector<double>& moved) {
    static const Sketch of_reference = sketch(wavy(kSize * kSize));
    const Sketch of_pass = sketch(moved);
    const Moments moments = moments_of(of_reference, of_pass);
    NoiseRow row = noise_row(id,
                             std::sqrt(moments.all.difference_squared),
                             outstanding_difference(of_reference, of_pass));
    row.along_reference = moments.slices.all.along_reference;
    for (const SliceSums& slice : moments.slices.sums) {
      row.slices.push_back(slice.difference_squared);
    }
    return row;
  }
  static Tensor part_of(const std::string& id, const std::vector<double>& all, int rank) {
    constexpr std::int64_t kHalf = kSize / 2;
    Tensor tensor{id, {}, ElementType::kF32, {kSize, kHalf}, {}};
    for (std::int64_t row = 0; row < kSize; ++row) {
      const auto begin = all.begin() + row * kSize + rank * kHalf;
      tensor.values.insert(tensor.values.end(), begin, begin + kHalf);
    }
    tensor.placement.dims = {{kSize, kSize, {{0, 0, kSize}}},
                             {kHalf, kSize, {{0, rank * kHalf, kHalf}}}};
    return tensor;
  }
  // The verdict of a candidate that is off by its own noise and by `error`; others of its kind tell
  // how noise varies.
  TensorVerdict verdict(const std::vector<double>& error) {
    const std::vector<double> r = wavy(kSize * kSize);
    const std::vector<double> c = sum(sum(r, noise(1000)), error);
    reference_.keep = candidate_.keep = Keep::kSketch;
    reference_.manifest.model = candidate_.manifest.model = {{"hidden", "256"}, {"heads", "4"}};
    reference_.add(0, {kOutput, r, ElementType::kF32, {kSize, kSize}, {}});
    candidate_.add(0, part_of(kOutput, c, 0)).add(1, part_of(kOutput, c, 1));
    for (int number = 0; number < kOthers; ++number) {
      const Tensor other{name_of_other(number), wavy(4), ElementType::kF32, {2, 2}, {}};
      reference_.add(0, other);
      candidate_.add_everywhere(other);
    }
    const Trace reference = reference_.write();
    for (int seed = 1; seed <= kPasses; ++seed) {
      NoisePass pass{seed, {row_of(kOutput, sum(r, noise(static_cast<unsigned>(seed))))}};
      for (int number = 0; number < kOthers; ++number) {
        NoiseRow other = noise_row(name_of_other(number), 1e-3, 1e-3);
        other.along_reference = 1e-3;
        pass.rows.push_back(as_pass(std::move(other), {32, 32}, seed));
      }
      write_noise(directory_ / "reference", pass);
    }
    report_ = diff(reference, candidate_.write());
    const auto found = std::ranges::find_if(report_.tensors, [](const TensorVerdict& tensor) {
      return to_string(tensor.id) == kOutput;
    });
    return *found;
  }
  static std::vector<double> nothing() { return std::vector<double>(kSize * kSize); }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  Report report_;
};

TEST_F(SketchVerdict, NoiseAloneIsWithinBound) {
  const TensorVerdict tensor = verdict(nothing());
  EXPECT_EQ(tensor.status(), Status::kWithin);
  ASSERT_TRUE(tensor.comparison);
  EXPECT_TRUE(tensor.comparison->is_estimate);
  EXPECT_NEAR(tensor.comparison->error, kNoise * kSize, 0.15 * kNoise * kSize);
  for (const Question question : {Question::kWhole, Question::kPart, Question::kFactor}) {
    ASSERT_NE(tensor.find(question), nullptr);
    EXPECT_TRUE(tensor.find(question)->holds);
  }
}

TEST_F(SketchVerdict, AnErrorEverywhereIsFound) {
  const TensorVerdict tensor = verdict(normal_values(kSize * kSize, 50, 4 * kNoise));
  EXPECT_EQ(tensor.tier(), Tier::kT2);
  EXPECT_EQ(tensor.symptom(), Symptom::kOutOfBound);
}

TEST_F(SketchVerdict, AnErrorInOneBlockOfRowsIsFoundThoughTheTensorIsWithinBound) {
  std::vector<double> error = nothing();
  const std::vector<double> wrong = normal_values(kSize * kSize, 51, 3.2 * kNoise);
  std::copy_n(wrong.begin() + 32 * kSize, 16 * kSize, error.begin() + 32 * kSize);
  const TensorVerdict tensor = verdict(error);
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_THAT(tensor.cause(), HasSubstr("rows 32:48 of dimension 0"));
}

TEST_F(SketchVerdict, AnErrorOfOneRankIsNamedByItsColumns) {
  std::vector<double> error = nothing();
  const std::vector<double> wrong = normal_values(kSize * kSize, 53, 3.8 * kNoise);
  for (std::int64_t row = 0; row < kSize; ++row) {
    std::copy_n(wrong.begin() + row * kSize + 128, 16, error.begin() + row * kSize + 128);
  }
  const TensorVerdict tensor = verdict(error);
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_THAT(tensor.cause(), HasSubstr("rows 128:144 of dimension 1"));
  EXPECT_THAT(tensor.ranks(), ElementsAre(1));
}

TEST_F(SketchVerdict, ASmallCommonFactorIsFound) {
  const TensorVerdict tensor = verdict(scaled(wavy(kSize * kSize), 1e-4));
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kFactor);
  EXPECT_NEAR(tensor.find(Question::kFactor)->value, 1e-4, 2e-5);
}

// Of a sketch, what is not finite counts as zero: no sum tells of it.
TEST_F(SketchVerdict, WhatIsNotFiniteOnOneSideIsFound) {
  std::vector<double> error = nothing();
  error[70000 % (kSize * kSize)] = std::numeric_limits<double>::quiet_NaN();
  error[kSize + 130] = std::numeric_limits<double>::infinity();
  const TensorVerdict tensor = verdict(error);
  EXPECT_EQ(tensor.symptom(), Symptom::kNonFinite);
  EXPECT_THAT(tensor.cause(), HasSubstr("2 elements"));
}

TEST_F(SketchVerdict, EqualTensorsAreKnownByTheirDigests) {
  const std::vector<double> r = wavy(kSize * kSize);
  reference_.keep = candidate_.keep = Keep::kSketch;
  constexpr auto kParameter = "s0/param/fc.weight/0";
  reference_.add(0, {kParameter, r, ElementType::kF32, {kSize, kSize}, {}});
  candidate_.add(0, part_of(kParameter, r, 0)).add(1, part_of(kParameter, r, 1));
  const Report report = diff(reference_.write(), candidate_.write());
  ASSERT_THAT(report.tensors, SizeIs(1));
  EXPECT_EQ(report.tensors.front().status(), Status::kWithin);
  EXPECT_EQ(report.tensors.front().comparison->different, 0);
}

TEST_F(SketchVerdict, WhatMustBeEqualAndHasAnotherDigestIsFound) {
  const std::vector<double> r = wavy(kSize * kSize);
  std::vector<double> c = r;
  c[5000] += 1.0;
  reference_.keep = candidate_.keep = Keep::kSketch;
  constexpr auto kParameter = "s0/param/fc.weight/0";
  reference_.add(0, {kParameter, r, ElementType::kF32, {kSize, kSize}, {}});
  candidate_.add(0, part_of(kParameter, c, 0)).add(1, part_of(kParameter, c, 1));
  const Report report = diff(reference_.write(), candidate_.write());
  ASSERT_THAT(report.tensors, SizeIs(1));
  EXPECT_EQ(report.tensors.front().symptom(), Symptom::kNotEqual);
  EXPECT_NEAR(report.tensors.front().comparison->error, 1.0, 1e-9);
}

}  // namespace
}  // namespace ttrace::testing
