#include "trace/sums/statistics.h"

#include "instruction_sets.h"
#include "trace/sums/statistics_kernel.h"

#include <ttrace/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values as the bytes of a tensor of `type`.
struct Tensor {
  Tensor(ElementType element_type, const std::vector<double>& values)
      : type(element_type),
        count(static_cast<std::int64_t>(values.size())),
        bytes(values.size() * element_size(element_type)) {
    from_double(type, values.data(), count, bytes.data());
  }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(count));
    to_double(type, bytes.data(), count, result.data());
    return result;
  }

  ElementType type;
  std::int64_t count;
  std::vector<std::byte> bytes;
};

Statistics compare(const Tensor& reference, const Tensor& candidate) {
  return compare(reference.type,
                 reference.bytes.data(),
                 candidate.type,
                 candidate.bytes.data(),
                 reference.count);
}

// Elements [begin, end) only, at their place in the whole.
Statistics compare_range(const Tensor& reference,
                         const Tensor& candidate,
                         std::int64_t begin,
                         std::int64_t end) {
  const auto start = static_cast<std::size_t>(begin);
  return compare(reference.type,
                 reference.bytes.data() + start * element_size(reference.type),
                 candidate.type,
                 candidate.bytes.data() + start * element_size(candidate.type),
                 end - begin,
                 begin);
}

std::vector<double> normal_values(std::size_t count, unsigned seed, double deviation = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(count);
  std::generate(values.begin(), values.end(), [&] { return distribution(engine); });
  return values;
}

std::vector<double> plus(std::vector<double> values, const std::vector<double>& other) {
  std::transform(values.begin(), values.end(), other.begin(), values.begin(), std::plus<>());
  return values;
}

// The definition, in long double, one element after the other.
struct Expected {
  long double reference_squared = 0, candidate_squared = 0, product = 0, difference_squared = 0;
  long double difference = 0, absolute_difference = 0, absolute_product = 0;
  long double max_difference = 0, max_reference = 0;
  std::int64_t max_index = -1, different = 0;
};

Expected by_definition(const Tensor& reference, const Tensor& candidate) {
  Expected expected;
  const std::vector<double> r = reference.values();
  const std::vector<double> c = candidate.values();
  for (std::size_t i = 0; i < r.size(); ++i) {
    const long double x = r[i];
    const long double y = c[i];
    const long double distance = std::abs(y - x);
    expected.reference_squared += x * x;
    expected.candidate_squared += y * y;
    expected.product += x * y;
    expected.absolute_product += std::abs(x * y);
    expected.difference_squared += distance * distance;
    expected.difference += y - x;
    expected.absolute_difference += distance;
    expected.max_reference = std::max(expected.max_reference, std::abs(x));
    expected.different += x != y ? 1 : 0;
    if (distance > expected.max_difference) {
      expected.max_difference = distance;
      expected.max_index = static_cast<std::int64_t>(i);
    }
  }
  return expected;
}

// Sums of one sign to 1e-6 of themselves, sums that cancel to 1e-6 of their absolute terms.
void expect_close(const Statistics& s, const Expected& expected) {
  const auto near = [](double actual, long double wanted, long double scale) {
    EXPECT_LE(std::abs(static_cast<long double>(actual) - wanted), 1e-6L * scale)
        << actual << " instead of " << static_cast<double>(wanted);
  };
  near(s.reference_squared, expected.reference_squared, expected.reference_squared);
  near(s.candidate_squared, expected.candidate_squared, expected.candidate_squared);
  near(s.product, expected.product, expected.absolute_product);
  near(s.difference_squared, expected.difference_squared, expected.difference_squared);
  near(s.difference, expected.difference, expected.absolute_difference);
  near(s.max_difference, expected.max_difference, expected.max_difference);
  near(s.max_reference, expected.max_reference, expected.max_reference);
  EXPECT_EQ(s.different, expected.different);
}

void expect_identical(const Statistics& a, const Statistics& b) {
  const auto same = [](double x, double y) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(x), std::bit_cast<std::uint64_t>(y))
        << x << " and " << y;
  };
  EXPECT_EQ(a.count, b.count);
  same(a.reference_squared, b.reference_squared);
  same(a.candidate_squared, b.candidate_squared);
  same(a.product, b.product);
  same(a.difference_squared, b.difference_squared);
  same(a.difference, b.difference);
  same(a.max_difference, b.max_difference);
  EXPECT_EQ(a.max_index, b.max_index);
  same(a.max_reference, b.max_reference);
  EXPECT_EQ(a.different, b.different);
  EXPECT_EQ(a.reference_nonfinite, b.reference_nonfinite);
  EXPECT_EQ(a.candidate_nonfinite, b.candidate_nonfinite);
  EXPECT_EQ(a.first_nonfinite, b.first_nonfinite);
}

constexpr ElementType kAllTypes[] = {ElementType::kF64,
                                     ElementType::kF32,
                                     ElementType::kF16,
                                     ElementType::kBF16,
                                     ElementType::kI64,
                                     ElementType::kI32,
                                     ElementType::kU8,
                                     ElementType::kBool};

TEST(Statistics, SmallTensorGivesTheFiguresCountedByHand) {
  const Tensor reference(ElementType::kF32, {3, -4, 0, 1});
  const Tensor candidate(ElementType::kF32, {3, -2, 0, 0});
  const Statistics s = compare(reference, candidate);
  EXPECT_EQ(s.count, 4);
  EXPECT_EQ(s.reference_squared, 26);
  EXPECT_EQ(s.candidate_squared, 13);
  EXPECT_EQ(s.product, 17);
  EXPECT_EQ(s.difference_squared, 5);
  EXPECT_EQ(s.difference, 1);
  EXPECT_EQ(s.max_difference, 2);
  EXPECT_EQ(s.max_index, 1);
  EXPECT_EQ(s.max_reference, 4);
  EXPECT_EQ(s.different, 2);
  EXPECT_EQ(s.first_nonfinite, -1);
  EXPECT_DOUBLE_EQ(s.relative_error(), std::sqrt(5.0 / 26.0));
  EXPECT_DOUBLE_EQ(s.factor(), 17.0 / 26.0);
}

TEST(Statistics, EveryPairOfTypesMatchesTheDefinition) {
  // Three blocks and a bit; whole numbers so that every type can hold something of them.
  std::vector<double> values = normal_values(3 * kStatisticsBlock + 77, 1, 40.0);
  std::vector<double> others = plus(values, normal_values(values.size(), 2, 4.0));
  for (const ElementType reference_type : kAllTypes) {
    for (const ElementType candidate_type : kAllTypes) {
      SCOPED_TRACE(std::string(name_of(reference_type)) + " " +
                   std::string(name_of(candidate_type)));
      std::vector<double> r = values;
      std::vector<double> c = others;
      const auto fit = [](ElementType type, std::vector<double>& numbers) {
        for (double& number : numbers) {
          number = type == ElementType::kBool ? (number > 0 ? 1.0 : 0.0)
                   : type == ElementType::kU8 ? std::min(std::round(std::abs(number)), 255.0)
                   : is_floating(type)        ? number
                                              : std::round(number);
        }
      };
      fit(reference_type, r);
      fit(candidate_type, c);
      const Tensor reference(reference_type, r);
      const Tensor candidate(candidate_type, c);
      const Statistics s = compare(reference, candidate);
      const Expected expected = by_definition(reference, candidate);
      expect_close(s, expected);
      EXPECT_EQ(s.max_index, expected.max_index);
    }
  }
}

TEST(Statistics, SmallDifferencesOfLargeTensorsAreAccurate) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF64}) {
    const std::vector<double> values = normal_values(100 * kStatisticsBlock, 3);
    const Tensor reference(type, values);
    const Tensor candidate(type, plus(values, normal_values(values.size(), 4, 1e-3)));
    expect_close(compare(reference, candidate), by_definition(reference, candidate));
  }
}

TEST(Statistics, TermsThatAllRoundTheSameWayDoNotAddUpTheirErrors) {
  // The square is 1 + 14 * 2^-23; an f32 sum above 32 drops everything but the 1.
  const Tensor reference(ElementType::kF32,
                         std::vector<double>(64 * kStatisticsBlock, 1.0 + 7 * 0x1p-23));
  const Tensor candidate(ElementType::kF32, std::vector<double>(64 * kStatisticsBlock, 1.0));
  const Expected expected = by_definition(reference, candidate);
  EXPECT_NEAR(compare(reference, candidate).reference_squared /
                  static_cast<double>(expected.reference_squared),
              1.0,
              3e-7);
}

TEST(Statistics, TinyAndHugeValuesNeitherUnderflowNorOverflow) {
  for (const double size : {1e-45, 1e-38, 1e-30, 1e-20, 1e-15, 1e15, 1e20, 1e38}) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      SCOPED_TRACE(size);
      std::vector<double> values = normal_values(2 * kStatisticsBlock + 5, 5, size);
      for (double& value : values) {
        value = std::clamp(value, -2.0 * size, 2.0 * size);
      }
      std::vector<double> others = values;
      for (std::size_t i = 0; i < others.size(); i += 3) {
        others[i] *= 1.25;
      }
      const Tensor reference(type, values);
      const Tensor candidate(type, others);
      const Statistics s = compare(reference, candidate);
      expect_close(s, by_definition(reference, candidate));
      EXPECT_EQ(s.reference_nonfinite + s.candidate_nonfinite, 0);
    }
  }
}

// Once the largest difference came out infinite and was nowhere to be found.
TEST(Statistics, DifferenceWhoseSquareAloneOverflowsIsMeasured) {
  const Tensor reference(ElementType::kF32, {1.0, 0x1p63, 2.0});
  const Tensor candidate(ElementType::kF32, {1.0, -0x1p63, 2.0});
  const Statistics s = compare(reference, candidate);
  EXPECT_EQ(s.max_difference, 0x1p64);
  EXPECT_EQ(s.max_index, 1);
  EXPECT_EQ(s.difference_squared, 0x1p128);
}

TEST(Statistics, TinyTensorBesideOrdinaryOneKeepsItsNorm) {
  const std::vector<double> ordinary = normal_values(kStatisticsBlock, 6);
  const std::vector<double> tiny = normal_values(kStatisticsBlock, 7, 1e-25);
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    const Tensor large(type, ordinary);
    const Tensor small(type, tiny);
    expect_close(compare(large, small), by_definition(large, small));
    expect_close(compare(small, large), by_definition(small, large));
  }
}

TEST(Statistics, DoublesWithSquaresBelowTheSmallestDoubleAreStillDifferent) {
  const Tensor reference(ElementType::kF64, std::vector<double>(10, 1e-200));
  const Tensor candidate(ElementType::kF64, std::vector<double>(10, 2e-200));
  const Statistics s = compare(reference, candidate);
  EXPECT_EQ(s.different, 10);
  EXPECT_EQ(s.max_difference, 1e-200);
  EXPECT_EQ(s.max_index, 0);
  EXPECT_EQ(s.max_reference, 1e-200);
}

TEST(Statistics, EqualTensorsHaveNoDifferenceAndNoPlaceOfIt) {
  const Tensor tensor(ElementType::kBF16, normal_values(5000, 8));
  const Statistics s = compare(tensor, tensor);
  EXPECT_EQ(s.difference_squared, 0);
  EXPECT_EQ(s.max_index, -1);
  EXPECT_EQ(s.different, 0);
  EXPECT_EQ(s.relative_error(), 0);
  EXPECT_DOUBLE_EQ(s.factor(), 1.0);
}

TEST(Statistics, NegativeZeroEqualsZero) {
  const Tensor reference(ElementType::kF32, {0.0, -0.0, 1.0});
  const Tensor candidate(ElementType::kF32, {-0.0, 0.0, 1.0});
  EXPECT_EQ(compare(reference, candidate).different, 0);
}

TEST(Statistics, FirstOfSeveralLargestDifferencesIsNamed) {
  std::vector<double> values(4 * kStatisticsBlock, 1.0);
  const Tensor reference(ElementType::kF32, values);
  values[3000] = 3.0;
  values[2100] = -1.0;
  values[2101] = 3.0;
  const Statistics s = compare(reference, Tensor(ElementType::kF32, values));
  EXPECT_EQ(s.max_difference, 2.0);
  EXPECT_EQ(s.max_index, 2100);
}

TEST(Statistics, NonfiniteElementsAreCountedAndLeftOutOfTheSums) {
  for (const ElementType type :
       {ElementType::kF32, ElementType::kBF16, ElementType::kF16, ElementType::kF64}) {
    std::vector<double> r(2 * kStatisticsBlock, 2.0);
    std::vector<double> c(2 * kStatisticsBlock, 3.0);
    r[5] = kNaN;
    c[5] = kNaN;  // the same NaN on both sides
    r[6] = kInfinity;
    c[6] = kInfinity;
    r[7] = kInfinity;      // only the reference
    c[1500] = -kInfinity;  // only the candidate, but not the first
    c[1400] = kNaN;
    const Statistics s = compare(Tensor(type, r), Tensor(type, c));
    const double finite = 2.0 * kStatisticsBlock - 5.0;
    EXPECT_EQ(s.reference_squared, 4.0 * finite);
    EXPECT_EQ(s.candidate_squared, 9.0 * finite);
    EXPECT_EQ(s.difference_squared, finite);
    EXPECT_EQ(s.reference_nonfinite, 3);
    EXPECT_EQ(s.candidate_nonfinite, 4);
    EXPECT_EQ(s.different, 2 * kStatisticsBlock - 2);
    EXPECT_EQ(s.first_nonfinite, 1400);
    EXPECT_EQ(s.max_difference, 1.0);
    EXPECT_EQ(s.max_index, 0);
  }
}

TEST(Statistics, InfinityWhereTheReferenceHasAnotherKindIsTheCandidatesOwn) {
  const Tensor reference(ElementType::kF32, {kNaN, kInfinity, kInfinity});
  EXPECT_EQ(
      compare(reference, Tensor(ElementType::kF32, {kNaN, kInfinity, -kInfinity})).first_nonfinite,
      2);
  EXPECT_EQ(compare(reference, Tensor(ElementType::kF32, {kNaN, kNaN, kInfinity})).first_nonfinite,
            1);
  EXPECT_EQ(compare(reference, Tensor(ElementType::kF32, {1.0, 1.0, 1.0})).first_nonfinite, -1);
}

TEST(Statistics, IntegersBeyondDoublePrecisionAreStillDifferent) {
  const std::vector<std::int64_t> reference{(std::int64_t{1} << 60U) + 1, 7};
  const std::vector<std::int64_t> candidate{(std::int64_t{1} << 60U) + 2, 7};
  const Statistics s =
      compare(ElementType::kI64, reference.data(), ElementType::kI64, candidate.data(), 2);
  EXPECT_EQ(s.different, 1);
}

TEST(Statistics, EmptyTensorsAreEqual) {
  const Statistics s = compare(ElementType::kF32, nullptr, ElementType::kBF16, nullptr, 0);
  EXPECT_EQ(s.count, 0);
  EXPECT_EQ(s.relative_error(), 0);
  EXPECT_TRUE(std::isnan(s.factor()));
}

TEST(Statistics, ZeroReferenceMakesTheRelativeErrorInfinite) {
  const Statistics s =
      compare(Tensor(ElementType::kF32, {0, 0}), Tensor(ElementType::kF32, {0, 1}));
  EXPECT_EQ(s.relative_error(), kInfinity);
  EXPECT_TRUE(std::isnan(s.factor()));
}

TEST(Statistics, NegativeCountIsRefused) {
  EXPECT_THROW(
      static_cast<void>(compare(ElementType::kF32, nullptr, ElementType::kF32, nullptr, -1)),
      UsageError);
}

TEST(Statistics, UnalignedBytesGiveTheSameResult) {
  for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
    const Tensor reference(type, normal_values(3000, 9));
    const Tensor candidate(type, normal_values(3000, 10));
    std::vector<std::byte> shifted(candidate.bytes.size() + 1);
    std::copy(candidate.bytes.begin(), candidate.bytes.end(), shifted.begin() + 1);
    expect_identical(
        compare(type, reference.bytes.data(), type, shifted.data() + 1, reference.count),
        compare(reference, candidate));
  }
}

// The last bits of a sum must not depend on how many threads or processes shared the work.
TEST(Statistics, AnySplitAtBlocksMergesToTheBitsOfOnePass) {
  std::mt19937_64 engine(11);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const std::size_t count = 1 + engine() % (40 * kStatisticsBlock);
    std::vector<double> values = normal_values(count, static_cast<unsigned>(round) + 100);
    std::vector<double> others =
        plus(values, normal_values(count, static_cast<unsigned>(round) + 200, 1e-2));
    if (round % 3 == 0) {
      others[engine() % count] = kNaN;
      values[engine() % count] = kInfinity;
      others[engine() % count] = 1e-30;
    }
    const ElementType type = kAllTypes[engine() % 4];
    const Tensor reference(type, values);
    const Tensor candidate(round % 5 == 0 ? ElementType::kF32 : type, others);

    Statistics merged;
    const auto end = static_cast<std::int64_t>(count);
    for (std::int64_t begin = 0; begin < end;) {
      const auto blocks = static_cast<std::int64_t>(1 + engine() % 7);
      const std::int64_t stop = std::min(begin + blocks * kStatisticsBlock, end);
      merged.merge(compare_range(reference, candidate, begin, stop));
      begin = stop;
    }
    expect_identical(merged, compare(reference, candidate));
  }
}

TEST(Statistics, MergingInGroupsGivesTheBitsOfOnePass) {
  const std::int64_t count = 23 * kStatisticsBlock + 9;
  const Tensor reference(ElementType::kF32, normal_values(static_cast<std::size_t>(count), 12));
  const Tensor candidate(ElementType::kF32, normal_values(static_cast<std::size_t>(count), 13));
  Statistics left = compare_range(reference, candidate, 0, 5 * kStatisticsBlock);
  Statistics middle =
      compare_range(reference, candidate, 5 * kStatisticsBlock, 6 * kStatisticsBlock);
  middle.merge(compare_range(reference, candidate, 6 * kStatisticsBlock, 17 * kStatisticsBlock));
  middle.merge(compare_range(reference, candidate, 17 * kStatisticsBlock, count));
  left.merge(middle);
  expect_identical(left, compare(reference, candidate));
}

TEST(Statistics, LargeTensorsNeedFewNodes) {
  const Tensor tensor(ElementType::kBF16, normal_values(255 * kStatisticsBlock, 16));
  EXPECT_EQ(compare(tensor, tensor).nodes.size(), 8u);  // 128 + 64 + ... + 1 blocks
}

TEST(Statistics, SplitWithinABlockChangesNoMoreThanRoundOff) {
  const Tensor reference(ElementType::kF32, normal_values(5000, 14));
  const Tensor candidate(ElementType::kF32, normal_values(5000, 15));
  Statistics merged = compare_range(reference, candidate, 0, 1500);
  merged.merge(compare_range(reference, candidate, 1500, 5000));
  expect_close(merged, by_definition(reference, candidate));
  EXPECT_EQ(merged.max_index, compare(reference, candidate).max_index);
}

// Lengths of less than a register, around a block, and around several.
std::vector<std::int64_t> telling_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 0; length <= 130; ++length) {
    lengths.push_back(length);
  }
  for (const std::int64_t blocks : {1, 2, 5}) {
    for (std::int64_t offset = -3; offset <= 3; ++offset) {
      lengths.push_back(blocks * kStatisticsBlock + offset);
    }
  }
  return lengths;
}

// Ordinary values, a few of them special. Integers get whole numbers.
std::vector<double> telling_values(ElementType type, std::int64_t count, unsigned seed) {
  std::vector<double> values = normal_values(static_cast<std::size_t>(count), seed, 30.0);
  constexpr double kSpecial[] = {0.0, -0.0, kNaN, kInfinity, -kInfinity, 1e-7, -1e-30, 6e4};
  std::mt19937_64 engine(seed);
  if (is_floating(type) && seed % 2 == 0) {
    for (std::size_t i = 0; i < values.size(); i += 1 + engine() % 400) {
      values[i] = kSpecial[engine() % std::size(kSpecial)];
    }
  }
  return values;
}

std::vector<const StatisticsKernel*> available_kernels() {
  std::vector<const StatisticsKernel*> kernels;
  for (const InstructionSet set : sets_of_this_processor()) {
    kernels.push_back(fastest(&kBaselineKernel, &kAvx2Kernel, &kAvx512Kernel, set));
  }
  return kernels;
}

// `tensor` compared by every kernel from an address that is `shift` bytes off its alignment.
void expect_same_bits_of_every_kernel(const Tensor& reference,
                                      const Tensor& candidate,
                                      std::size_t shift) {
  std::vector<std::byte> shifted(candidate.bytes.size() + shift);
  std::copy(candidate.bytes.begin(),
            candidate.bytes.end(),
            shifted.begin() + static_cast<std::ptrdiff_t>(shift));
  const TensorBytes r{reference.type, reference.bytes.data()};
  const TensorBytes c{candidate.type, shifted.data() + shift};
  const std::vector<const StatisticsKernel*> kernels = available_kernels();
  const Statistics expected = compare_with(*kernels.front(), r, c, reference.count);
  for (const StatisticsKernel* kernel : kernels) {
    SCOPED_TRACE(kernel->name);
    expect_identical(compare_with(*kernel, r, c, reference.count), expected);
  }
  expect_identical(compare(r.type, r.bytes, c.type, c.bytes, reference.count), expected);
}

// On a processor that has only the baseline, this compares compare() with itself.
TEST(StatisticsKernels, GiveTheSameBitsForEveryTypeLengthAndAlignment) {
  unsigned seed = 0;
  for (const ElementType type : kAllTypes) {
    for (const std::int64_t length : telling_lengths()) {
      SCOPED_TRACE(std::string(name_of(type)) + ", " + std::to_string(length));
      seed += 3;
      const std::vector<double> values = telling_values(type, length, seed);
      const Tensor reference(type, values);
      const Tensor candidate(type, plus(values, telling_values(type, length, seed + 1)));
      expect_same_bits_of_every_kernel(reference, candidate, seed % 8);
    }
  }
}

TEST(StatisticsKernels, GiveTheSameBitsForPairsOfTypes) {
  constexpr std::int64_t kCount = 2 * kStatisticsBlock + 77;
  for (const ElementType reference_type : kAllTypes) {
    for (const ElementType candidate_type : kAllTypes) {
      SCOPED_TRACE(std::string(name_of(reference_type)) + " " +
                   std::string(name_of(candidate_type)));
      expect_same_bits_of_every_kernel(
          Tensor(reference_type, telling_values(reference_type, kCount, 20)),
          Tensor(candidate_type, telling_values(candidate_type, kCount, 22)),
          1);
    }
  }
}

TEST(StatisticsKernels, GiveTheSameBitsWhereSquaresLeaveTheRangeOfFloat) {
  for (const double size : {1e-45, 1e-30, 1e-15, 1e15, 1e30}) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF64}) {
      SCOPED_TRACE(size);
      const std::vector<double> values = normal_values(3000, 23, size);
      expect_same_bits_of_every_kernel(
          Tensor(type, values), Tensor(type, plus(values, normal_values(3000, 24, size))), 0);
    }
  }
}

// Every bit pattern of the 16-bit formats, one tensor each, so that no sum hides it.
TEST(StatisticsKernels, ReadEveryValueOfTheSmallFormats) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
    const Tensor one(type, {1.0});
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto pattern = static_cast<std::uint16_t>(bits);
      double value = 0.0;
      to_double(type, &pattern, 1, &value);
      if (!std::isfinite(value)) {
        continue;
      }
      for (const StatisticsKernel* kernel : available_kernels()) {
        const Statistics s = compare_with(*kernel,
                                          {type, one.bytes.data()},
                                          {type, reinterpret_cast<const std::byte*>(&pattern)},
                                          1);
        ASSERT_EQ(s.product, value) << kernel->name << ", " << name_of(type) << " " << bits;
      }
    }
  }
}

}  // namespace
}  // namespace ttrace
