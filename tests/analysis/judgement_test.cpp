// Nine situations that tolerances in use get wrong, each in another way: a mean over all elements
// misses what is wrong in a few, an absolute tolerance is blind to small gradients, and a relative
// one trips on zeros.
#include "analysis/bounds/bounds.h"
#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/random.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::TraceBuilder;

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kChannels = 256;
constexpr auto kJudgedElements = static_cast<std::size_t>(kTokens * kChannels);
constexpr int kPasses = 5;
constexpr auto kLayer = "s0/m0/output/decoder.layers.0/0";
constexpr auto kGradient = "s0/main_grad/decoder.layers.0.weight/0";
const double kTiny = std::ldexp(1.0, -20);  // 0.95e-6; a power of two, so that nothing rounds

std::size_t row(std::int64_t token) {
  return static_cast<std::size_t>(token * kChannels);
}

std::vector<std::byte> stored(const std::vector<double>& values, ElementType type) {
  std::vector<std::byte> bytes(values.size() * element_size(type));
  from_double(type, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  return bytes;
}

// Evenly distributed in [0, 1).
double uniform_number(std::uint64_t seed, std::uint64_t index) {
  return std::ldexp(static_cast<double>(random_bits(seed, index) >> 11U), -53);
}

// N(0, 1) by Box and Muller, as `type` holds it.
std::vector<double> normal(ElementType type,
                           std::uint64_t seed,
                           std::size_t count = kJudgedElements) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sqrt(-2.0 * std::log(1.0 - uniform_number(seed, 2 * i))) *
                std::cos(2.0 * std::numbers::pi * uniform_number(seed, 2 * i + 1));
  }
  const std::vector<std::byte> bytes = stored(values, type);
  to_double(type, bytes.data(), static_cast<std::int64_t>(count), values.data());
  return values;
}

// Noise of BF16: one element in four is a last bit larger or smaller, which is 0.3 % of the norm.
std::vector<double> with_flipped_last_bits(std::vector<double> values, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& value = values[i];
    const std::uint64_t bits = random_bits(seed, i);
    if (bits % 8 < 2) {
      const double ulp = unit_in_last_place(ElementType::kBF16, value);
      value += bits % 8 == 0 ? ulp : -ulp;
    }
  }
  return values;
}

// Noise of F32: an error of 1e-6 of the norm, evenly distributed.
std::vector<double> with_error_of_a_millionth(std::vector<double> values, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += 1e-6 * std::sqrt(3.0) * (2.0 * uniform_number(seed, i) - 1.0);
  }
  return values;
}

using Noise = std::vector<double> (*)(std::vector<double>, std::uint64_t);

// The row of a noise pass that computed `moved` instead of `reference`.
NoiseRow noise_row(ElementType type,
                   const std::vector<double>& reference,
                   const std::vector<double>& moved) {
  const std::vector<std::int64_t> shape{kTokens, kChannels};
  const std::vector<std::byte> r = stored(reference, type);
  const std::vector<std::byte> m = stored(moved, type);
  const Statistics statistics =
      compare(type, r.data(), type, m.data(), static_cast<std::int64_t>(kJudgedElements));
  const Slices slices = sum_slices(shape, type, r.data(), type, m.data());
  NoiseRow noise;
  noise.sum_squared = statistics.difference_squared;
  noise.max_abs = statistics.max_difference;
  noise.along_reference = slices.all.along_reference;
  for (const SliceSums& slice : slices.sums) {
    noise.slices.push_back(slice.difference_squared);
  }
  return noise;
}

// A tensor of 4096 tokens and 256 channels, what five noise passes do to it, and a candidate that
// differs by noise of the same kind alone.
struct Situation {
  ElementType type;
  std::vector<double> reference;
  std::vector<double> candidate;
  std::vector<NoiseRow> noise;  // one per pass

  Situation(ElementType element_type, Noise move)
      : type(element_type),
        reference(normal(element_type, kSeed)),
        candidate(move(reference, kCandidateSeed)) {
    for (std::uint64_t pass = 1; pass <= kPasses; ++pass) {
      noise.push_back(noise_row(type, reference, move(reference, pass)));
    }
  }

  static constexpr std::uint64_t kSeed = 20240601;
  static constexpr std::uint64_t kCandidateSeed = 77;
};

// Made once: a million elements take their time.
const Situation& in_bf16() {
  static const Situation situation(ElementType::kBF16, with_flipped_last_bits);
  return situation;
}

// Multiplies everything by a power of two, which rounds nothing.
Situation smaller(Situation situation, double factor) {
  situation.reference = scaled(std::move(situation.reference), factor);
  situation.candidate = scaled(std::move(situation.candidate), factor);
  for (NoiseRow& row : situation.noise) {
    row.sum_squared *= factor * factor;
    row.max_abs *= factor;
    *row.along_reference *= factor * factor;
    row.slices = scaled(std::move(row.slices), factor * factor);
    if (row.sum_squared == 0.0) {
      row.slices.clear();
    }
  }
  return situation;
}

class Judgement : public ::testing::Test {
 protected:
  Trace write(const std::string& pass,
              const std::string& id,
              ElementType type,
              const std::vector<double>& values) {
    TraceBuilder builder(folder_ / pass, pass);
    builder.manifest.precision = std::string(name_of(type));
    builder.add(0, {id, values, type, {kTokens, kChannels}, {}});
    return builder.write();
  }

  TensorVerdict verdict(const std::string& id,
                        const Situation& situation,
                        const std::vector<double>& candidate) {
    const Trace reference = write("reference", id, situation.type, situation.reference);
    for (std::size_t pass = 0; pass < situation.noise.size(); ++pass) {
      NoiseRow row = situation.noise[pass];
      row.id = parse_tensor_id(id);
      write_noise(reference.directory(), {static_cast<int>(pass) + 1, {row}});
    }
    report_ = diff(reference, write("candidate", id, situation.type, candidate));
    return report_.tensors.at(0);
  }

  // The report about a BF16 output that `wrong` changes in addition to the noise.
  TensorVerdict verdict_of_output(const std::function<void(std::vector<double>&)>& wrong) {
    std::vector<double> candidate = in_bf16().candidate;
    wrong(candidate);
    return verdict(kLayer, in_bf16(), candidate);
  }

  // The report about a BF16 gradient of about 1e-6 that is `times` its right value.
  TensorVerdict verdict_of_gradient(double times) {
    const Situation situation = smaller(in_bf16(), kTiny);
    return verdict(kGradient, situation, scaled(situation.candidate, times));
  }

  TemporaryDirectory folder_;
  Report report_;
};

TEST_F(Judgement, LastBitsOfBF16ThatDifferAreWithinBound) {
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>&) {});
  EXPECT_NEAR(tensor.comparison->relative_error, 3.0e-3, 0.5e-3);
  EXPECT_EQ(tensor.origin(), BoundOrigin::kNoise);
  EXPECT_EQ(tensor.status(), Status::kWithin) << tensor.cause();
}

TEST_F(Judgement, ErrorsOfAMillionthInF32AreWithinBound) {
  const Situation situation(ElementType::kF32, with_error_of_a_millionth);
  const TensorVerdict tensor = verdict(kLayer, situation, situation.candidate);
  EXPECT_NEAR(tensor.comparison->relative_error, 1.0e-6, 0.1e-6);
  EXPECT_EQ(tensor.origin(), BoundOrigin::kNoise);
  EXPECT_EQ(tensor.status(), Status::kWithin) << tensor.cause();
}

// 2 % of the norm: the mean over all elements hides it.
TEST_F(Judgement, OneWrongTokenOf4096IsFoundAndNamed) {
  constexpr std::int64_t kToken = 1234;
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>& values) {
    const std::vector<double> other =
        normal(ElementType::kBF16, 5, static_cast<std::size_t>(kChannels));
    std::copy(other.begin(), other.end(), values.begin() + row(kToken));
  });
  EXPECT_NEAR(tensor.comparison->relative_error, 2.2e-2, 0.3e-2);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  ASSERT_NE(tensor.find(Question::kPart), nullptr);
  EXPECT_EQ(tensor.find(Question::kPart)->place.where, "rows 1234:1235 of dimension 0");
  ASSERT_TRUE(report_.diagnosis);
  EXPECT_EQ(report_.diagnosis->signature, Signature::kLocalised);
  EXPECT_WORDING(report_.diagnosis.value().sentence);
}

// This is far below the bound of the whole tensor.
TEST_F(Judgement, OneTokenThatIsATenthOffIsFoundAndNamed) {
  constexpr std::int64_t kToken = 1234;
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>& values) {
    for (std::size_t i = row(kToken); i < row(kToken + 1); ++i) {
      values[i] += i % 2 == 0 ? 0.1 : -0.1;
    }
  });
  EXPECT_LT(tensor.comparison->error, tensor.bound());
  EXPECT_EQ(tensor.symptom(), Symptom::kSlice);
  EXPECT_THAT(tensor.cause(), HasSubstr("rows 1234:1235 of dimension 0"));
}

TEST_F(Judgement, FourTokensShiftedAtASeamAreFoundAndNamed) {
  constexpr std::int64_t kSeam = 2048;
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>& values) {
    std::copy_backward(values.begin() + row(kSeam - 3),
                       values.begin() + row(kSeam + 1),
                       values.begin() + row(kSeam + 2));
  });
  EXPECT_NEAR(tensor.comparison->relative_error, 4.4e-2, 0.4e-2);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  ASSERT_NE(tensor.find(Question::kPart), nullptr);
  EXPECT_EQ(tensor.find(Question::kPart)->place.where, "rows 2046:2050 of dimension 0");
}

TEST_F(Judgement, AFactorOf1_03IsFoundAndNamed) {
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>& values) {
    std::for_each(values.begin(), values.end(), [](double& value) { value *= 1.03; });
  });
  EXPECT_NEAR(tensor.comparison->relative_error, 3.0e-2, 0.1e-2);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  EXPECT_EQ(tensor.symptom(), Symptom::kFactor);
  EXPECT_NEAR(tensor.comparison->factor, 1.03, 1e-3);
}

TEST_F(Judgement, OneZeroedChannelOf256IsFoundAndNamed) {
  constexpr std::size_t kChannel = 77;
  const TensorVerdict tensor = verdict_of_output([](std::vector<double>& values) {
    for (std::int64_t token = 0; token < kTokens; ++token) {
      values[row(token) + kChannel] = 0.0;
    }
  });
  EXPECT_NEAR(tensor.comparison->relative_error, 6.3e-2, 0.2e-2);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  ASSERT_NE(tensor.find(Question::kPart), nullptr);
  EXPECT_EQ(tensor.find(Question::kPart)->place.where, "rows 77:78 of dimension 1");
}

TEST_F(Judgement, ZerosOnBothSidesAreWithinBound) {
  const Situation zeros = smaller(in_bf16(), 0.0);
  const TensorVerdict tensor = verdict(kLayer, zeros, zeros.candidate);
  EXPECT_EQ(tensor.status(), Status::kWithin) << tensor.cause();
  EXPECT_EQ(tensor.comparison->relative_error, 0.0);
}

TEST_F(Judgement, AGradientOfAMillionthReplacedByZerosIsFound) {
  const TensorVerdict tensor = verdict_of_gradient(0.0);
  EXPECT_DOUBLE_EQ(tensor.comparison->relative_error, 1.0);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
}

TEST_F(Judgement, AGradientOfAMillionthDoubledIsFoundAsAFactor) {
  const TensorVerdict tensor = verdict_of_gradient(2.0);
  EXPECT_NEAR(tensor.comparison->relative_error, 1.0, 0.01);
  EXPECT_EQ(tensor.status(), Status::kDiverged);
  EXPECT_EQ(tensor.symptom(), Symptom::kFactor);
  EXPECT_NEAR(tensor.comparison->factor, 2.0, 0.01);
}

}  // namespace
}  // namespace ttrace
