
#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::uint16_t encode(ElementType type, double value) {
  std::uint16_t bits = 0;
  from_double(type, &value, 1, &bits);
  return bits;
}

double decode(ElementType type, std::uint16_t bits) {
  double value = 0.0;
  to_double(type, &bits, 1, &value);
  return value;
}

template <class Element>
std::vector<Element> narrow(ElementType type, const std::vector<double>& values) {
  std::vector<Element> result(values.size());
  from_double(type, values.data(), static_cast<std::int64_t>(values.size()), result.data());
  return result;
}

TEST(ElementType, NamesRoundTripAndMatchTheFormat) {
  const std::vector<std::string_view> names = {
      "f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool", "e4m3", "e5m2", "e8m0", "e2m1"};
  const std::vector<std::size_t> sizes = {8, 4, 2, 2, 8, 4, 1, 1, 1, 1, 1, 1};
  for (std::size_t number = 0; number < names.size(); ++number) {
    const auto type = static_cast<ElementType>(number);
    EXPECT_EQ(name_of(type), names[number]);
    EXPECT_EQ(parse_element_type(names[number]), type);
    EXPECT_EQ(element_size(type), sizes[number]) << names[number];
    EXPECT_EQ(is_floating(type), number < 4 || number > 7) << names[number];
  }
}

std::uint8_t encode_byte(ElementType type, double value) {
  std::uint8_t code = 0;
  from_double(type, &value, 1, &code);
  return code;
}

TEST(ElementType, E2M1HasSixteenCodesAndSaturates) {
  std::vector<double> numbers;
  for (std::uint16_t code = 0; code < 16; ++code) {
    numbers.push_back(decode(ElementType::kE2M1, code));
    EXPECT_EQ(encode_byte(ElementType::kE2M1, numbers.back()), code);
  }
  EXPECT_THAT(
      numbers,
      ElementsAre(
          0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0));
  const auto rounded = [](double value) {
    return decode(ElementType::kE2M1, encode_byte(ElementType::kE2M1, value));
  };
  EXPECT_EQ(rounded(0.25), 0.0);  // ties to even
  EXPECT_EQ(rounded(0.75), 1.0);
  EXPECT_EQ(rounded(2.5), 2.0);
  EXPECT_EQ(rounded(5.0), 4.0);
  EXPECT_EQ(rounded(-1e9), -6.0);
  EXPECT_EQ(rounded(kInfinity), 6.0);
}

TEST(FloatFormat, SaysWhatTheSmallestAndTheLargestNumbersAre) {
  EXPECT_EQ(format_of(ElementType::kE4M3).smallest(), 0x1p-9);
  EXPECT_EQ(format_of(ElementType::kE5M2).smallest(), 0x1p-16);
  EXPECT_EQ(format_of(ElementType::kE2M1).smallest(), 0.5);
  EXPECT_EQ(format_of(ElementType::kE8M0).smallest(), 0x1p-127);
  EXPECT_EQ(format_of(ElementType::kF16).overflow(), 65520.0);
  for (const ElementType type : {ElementType::kF16,
                                 ElementType::kBF16,
                                 ElementType::kE4M3,
                                 ElementType::kE5M2,
                                 ElementType::kE8M0,
                                 ElementType::kE2M1}) {
    const FloatFormat& format = format_of(type);
    std::array<double, 2> ends = {format.smallest(), format.largest};
    std::array<std::uint16_t, 2> codes{};
    from_double(type, ends.data(), 2, codes.data());
    std::array<double, 2> back{};
    to_double(type, codes.data(), 2, back.data());
    EXPECT_EQ(back, ends) << name_of(type);
  }
  EXPECT_THROW(static_cast<void>(format_of(ElementType::kI32)), InternalError);
}

// codecs_test compares values within the ranges with gfloat.
TEST(ElementType, OneByteFormatsHaveACodeForWhatTheyCannotHold) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(encode_byte(ElementType::kE4M3, 464.0), 0x7e);  // a tie, and the largest number is even
  EXPECT_EQ(encode_byte(ElementType::kE4M3, 465.0), 0x7f);  // NaN: there is no infinity
  EXPECT_EQ(encode_byte(ElementType::kE4M3, -kInfinity), 0xff);
  EXPECT_EQ(encode_byte(ElementType::kE4M3, kNan) & 0x7f, 0x7f);
  EXPECT_EQ(encode_byte(ElementType::kE5M2, 61439.0), 0x7b);
  EXPECT_EQ(encode_byte(ElementType::kE5M2, -61440.0), 0xfc);  // infinity
  EXPECT_EQ(encode_byte(ElementType::kE5M2, kNan) & 0x7f, 0x7f);
  EXPECT_EQ(encode_byte(ElementType::kE8M0, kInfinity), 255);
  EXPECT_EQ(encode_byte(ElementType::kE8M0, 0.0), 0);
  EXPECT_EQ(encode_byte(ElementType::kE8M0, 3.0), 129);  // in the middle of 2 and 4
}

TEST(ElementType, UnknownNameIsQuotedInTheError) {
  try {
    (void)parse_element_type("float32");
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_THAT(error.message(), HasSubstr("\"float32\""));
  }
}

TEST(ElementType, RoundingErrorScalesWithTheMantissa) {
  EXPECT_DOUBLE_EQ(rounding_error(ElementType::kBF16), 0.00166);
  EXPECT_DOUBLE_EQ(rounding_error(ElementType::kF16), 0.000208);
  EXPECT_DOUBLE_EQ(rounding_error(ElementType::kF32), 0.00166 / 65536.0);
  EXPECT_DOUBLE_EQ(rounding_error(ElementType::kF64), 0.00166 / std::ldexp(1.0, 45));
  EXPECT_EQ(rounding_error(ElementType::kI64), 0.0);
  EXPECT_EQ(rounding_error(ElementType::kBool), 0.0);
}

TEST(ElementType, EveryBf16PatternIsTheUpperHalfOfAFloatAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double value = decode(ElementType::kBF16, pattern);
    const auto expected = static_cast<double>(std::bit_cast<float>(bits << 16));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(encode(ElementType::kBF16, value), pattern | 0x0040) << bits;  // quiet
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(expected));
      ASSERT_EQ(encode(ElementType::kBF16, value), pattern) << bits;
    }
  }
}

// The definition of the format: (1 + m / 1024) * 2^(e - 15), or m * 2^-24 if e is 0.
TEST(ElementType, EveryF16PatternHasItsDefinedValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    const double value = decode(ElementType::kF16, pattern);
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(encode(ElementType::kF16, value), pattern | 0x0200) << bits;  // quiet
      continue;
    }
    double expected = std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) {
      expected = kInfinity;
    } else if (exponent == 0) {
      expected = std::ldexp(mantissa, -24);
    }
    ASSERT_EQ(std::abs(value), expected) << bits;
    ASSERT_EQ(encode(ElementType::kF16, value), pattern) << bits;
  }
}

// Neighbours a < b, their midpoint m: below m gives a, above m gives b, m the one with an even last
// bit. Infinity stands for the next power of two, as IEEE 754 has it.
void expect_nearest_even_everywhere(ElementType type, std::uint16_t infinity, double next_power) {
  for (std::uint16_t lower = 0; lower < infinity; ++lower) {
    const auto upper = static_cast<std::uint16_t>(lower + 1);
    const double a = decode(type, lower);
    const double b = upper == infinity ? next_power : decode(type, upper);
    const double middle = a + (b - a) / 2;
    const std::uint16_t even = lower % 2 == 0 ? lower : upper;
    for (const double sign : {1.0, -1.0}) {
      const std::uint16_t minus = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(encode(type, sign * middle), even | minus) << "midpoint above " << lower;
      ASSERT_EQ(encode(type, sign * std::nextafter(middle, 0.0)), lower | minus) << lower;
      ASSERT_EQ(encode(type, sign * std::nextafter(middle, kInfinity)), upper | minus) << lower;
    }
  }
}

TEST(ElementType, Bf16RoundsToNearestEvenBetweenAllNeighboursIncludingSubnormals) {
  expect_nearest_even_everywhere(ElementType::kBF16, 0x7f80, std::ldexp(1.0, 128));
}

TEST(ElementType, F16RoundsToNearestEvenBetweenAllNeighboursIncludingSubnormals) {
  expect_nearest_even_everywhere(ElementType::kF16, 0x7c00, 65536.0);
}

TEST(ElementType, Bf16RoundsOnceWhereGoingThroughFloatRoundsTwice) {
  const double value = 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);  // just above a midpoint
  ASSERT_EQ(static_cast<float>(value), 1.0f + std::ldexp(1.0f, -8));      // float: on the midpoint
  EXPECT_EQ(encode(ElementType::kBF16, value), 0x3f81);
}

TEST(ElementType, ExtremesOfDoubleBecomeInfinityAndSignedZero) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
    const std::uint16_t infinity = type == ElementType::kF16 ? 0x7c00 : 0x7f80;
    EXPECT_EQ(encode(type, std::numeric_limits<double>::max()), infinity);
    EXPECT_EQ(encode(type, -kInfinity), infinity | 0x8000);
    EXPECT_EQ(encode(type, std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(encode(type, -std::numeric_limits<double>::denorm_min()), 0x8000);
    EXPECT_EQ(encode(type, -0.0), 0x8000);
    // A NaN whose payload lies only in the bits that are cut off must not become infinity.
    const double faint = std::bit_cast<double>(std::uint64_t{0x7ff0000000000001});
    EXPECT_TRUE(std::isnan(decode(type, encode(type, faint))));
  }
}

TEST(ElementType, F32RoundsLikeTheMachineAndWidensExactly) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 160);
    float narrowed = 0.0f;
    from_double(ElementType::kF32, &value, 1, &narrowed);
    ASSERT_EQ(narrowed, static_cast<float>(value));
    double widened = 0.0;
    to_double(ElementType::kF32, &narrowed, 1, &widened);
    ASSERT_EQ(widened, static_cast<double>(narrowed));
  }
}

TEST(ElementType, IntegersRoundToEvenAndStopAtTheEndsOfTheirRange) {
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_THAT(narrow<std::uint8_t>(ElementType::kU8, {0.5, 1.5, 2.5, 255.4, 256.0, -1.0, NAN}),
              ElementsAre(0, 2, 2, 255, 255, 0, 0));
  EXPECT_THAT(narrow<std::int32_t>(ElementType::kI32, {-2.5, -3.5, 3e9, -3e9, 7.0}),
              ElementsAre(-2, -4, 2147483647, -2147483647 - 1, 7));
  EXPECT_THAT(narrow<std::int64_t>(ElementType::kI64, {0x1p63, -0x1p63, kInfinity, -1e300, 0x1p53}),
              ElementsAre(kMax64, kMin64, kMax64, kMin64, std::int64_t{1} << 53));
  EXPECT_THAT(narrow<std::uint8_t>(ElementType::kBool, {0.0, -0.0, 0.25, -3.0}),
              ElementsAre(0, 0, 1, 1));
}

TEST(ElementType, IntegersWidenToTheirValue) {
  const std::vector<std::int64_t> wide = {-5, 0, (std::int64_t{1} << 53) + 1};
  const std::vector<std::uint8_t> flags = {0, 1, 1};
  std::vector<double> values(3);
  to_double(ElementType::kI64, wide.data(), 3, values.data());
  EXPECT_THAT(values, ElementsAre(-5.0, 0.0, 0x1p53));  // beyond 2^53 it rounds
  to_double(ElementType::kBool, flags.data(), 3, values.data());
  EXPECT_THAT(values, ElementsAre(0.0, 1.0, 1.0));
}

TEST(ElementType, ConvertsAtUnalignedAddresses) {
  std::vector<unsigned char> bytes(1 + 3 * sizeof(double));
  const std::vector<double> values = {1.5, -2.25, 1e-300};
  from_double(ElementType::kF64, values.data(), 3, bytes.data() + 1);
  std::vector<double> back(3);
  to_double(ElementType::kF64, bytes.data() + 1, 3, back.data());
  EXPECT_EQ(back, values);
}

}  // namespace
}  // namespace ttrace
