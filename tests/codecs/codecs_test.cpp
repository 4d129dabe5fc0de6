// TTrace's conversions of small formats against the table that small_formats.py makes with gfloat.
#include "trace/kernels/noise.h"

#include <ttrace/element_type.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// As small_formats.py writes it.
struct Row {
  double value = 0.0;
  std::uint16_t code = 0;
  std::uint8_t format = 0;
  std::uint8_t is_encoded = 0;
  std::uint32_t unused = 0;

  [[nodiscard]] ElementType type() const { return static_cast<ElementType>(format); }
};
static_assert(sizeof(Row) == 16);

const std::vector<Row>& table() {
  static const std::vector<Row> rows = [] {
    std::ifstream in(TTRACE_SMALL_FORMATS, std::ios::binary | std::ios::ate);
    std::vector<Row> result(static_cast<std::size_t>(in.tellg()) / sizeof(Row));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(result.data()),
            static_cast<std::streamsize>(result.size() * sizeof(Row)));
    return result;
  }();
  return rows;
}

double decoded(ElementType type, std::uint16_t code) {
  double value = 0.0;
  to_double(type, &code, 1, &value);
  return value;
}

std::uint16_t encoded(ElementType type, double value) {
  std::uint16_t code = 0;
  from_double(type, &value, 1, &code);
  return code;
}

TEST(SmallFormats, EveryCodeStandsForTheNumberThatGfloatGivesIt) {
  std::map<ElementType, int> rows;
  for (const Row& row : table()) {
    if (row.is_encoded != 0) {
      continue;
    }
    ++rows[row.type()];
    const double value = decoded(row.type(), row.code);
    if (std::isnan(row.value)) {
      ASSERT_TRUE(std::isnan(value)) << name_of(row.type()) << " " << row.code;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(row.value))
          << name_of(row.type()) << " " << row.code;
    }
  }
  const std::map<ElementType, int> all = {{ElementType::kF16, 65536},
                                          {ElementType::kBF16, 65536},
                                          {ElementType::kE4M3, 256},
                                          {ElementType::kE5M2, 256},
                                          {ElementType::kE8M0, 256}};
  EXPECT_EQ(rows, all);
}

// All middles between neighbours with the doubles next to them, what lies beyond the largest
// number, infinity and NaN. Which of the codes for NaN it is does not matter.
TEST(SmallFormats, NumbersRoundToTheCodeThatGfloatGivesThem) {
  std::map<ElementType, int> rows;
  for (const Row& row : table()) {
    if (row.is_encoded == 0) {
      continue;
    }
    ++rows[row.type()];
    const std::uint16_t code = encoded(row.type(), row.value);
    const bool both_nan =
        std::isnan(decoded(row.type(), code)) && std::isnan(decoded(row.type(), row.code));
    ASSERT_TRUE(code == row.code || both_nan)
        << name_of(row.type()) << " " << row.value << ": " << code << ", gfloat " << row.code;
  }
  EXPECT_GT(rows[ElementType::kF16], 450000);
  EXPECT_GT(rows[ElementType::kBF16], 450000);
  EXPECT_GT(rows[ElementType::kE4M3], 200000);
  EXPECT_GT(rows[ElementType::kE5M2], 200000);
  EXPECT_GT(rows[ElementType::kE8M0], 100000);
}

// The codes of gfloat's finite numbers above zero, in the order of the numbers.
std::vector<std::uint16_t> positive_codes(ElementType type) {
  std::vector<Row> rows;
  std::copy_if(table().begin(), table().end(), std::back_inserter(rows), [&](const Row& row) {
    return row.type() == type && row.is_encoded == 0 && std::isfinite(row.value) && row.value > 0.0;
  });
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.value < b.value; });
  std::vector<std::uint16_t> codes;
  for (const Row& row : rows) {
    codes.push_back(row.code);
  }
  return codes;
}

template <class Format>
void expect_moves_to_neighbours(ElementType type) {
  using Bits = typename Format::Bits;
  constexpr std::uint8_t kUp = 0;
  constexpr std::uint8_t kDown = 32;
  constexpr std::uint8_t kStay = 64;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  const std::vector<std::uint16_t> codes = positive_codes(type);
  ASSERT_GT(codes.size(), 100U);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint16_t below = codes[i == 0 ? i : i - 1];  // neither zero nor infinity is reached
    const std::uint16_t above = codes[std::min(i + 1, codes.size() - 1)];
    for (const Bits sign : {Bits{0}, kSign}) {
      const auto value = static_cast<Bits>(codes[i] | sign);
      ASSERT_EQ(moved<Format>(value, kStay), value);
      ASSERT_EQ(moved<Format>(value, kUp), static_cast<Bits>(above | sign)) << codes[i];
      ASSERT_EQ(moved<Format>(value, kDown), static_cast<Bits>(below | sign)) << codes[i];
    }
  }
}

TEST(SmallFormats, NoiseMovesEveryNumberToItsNeighbours) {
  expect_moves_to_neighbours<NoiseF16>(ElementType::kF16);
  expect_moves_to_neighbours<NoiseBF16>(ElementType::kBF16);
  expect_moves_to_neighbours<NoiseE4M3>(ElementType::kE4M3);
  expect_moves_to_neighbours<NoiseE5M2>(ElementType::kE5M2);
}

TEST(SmallFormats, NoiseLeavesZerosInfinitiesAndNanAlone) {
  const auto expect_all_stay = [](ElementType type, auto move) {
    for (const Row& row : table()) {
      if (row.type() == type && row.is_encoded == 0 &&
          (row.value == 0.0 || !std::isfinite(row.value))) {
        for (const auto random : {std::uint8_t{0}, std::uint8_t{32}, std::uint8_t{64}}) {
          ASSERT_EQ(move(row.code, random), row.code) << name_of(type);
        }
      }
    }
  };
  const auto by = [](auto format) {
    return [](std::uint16_t code, std::uint8_t random) -> std::uint16_t {
      using Format = decltype(format);
      return moved<Format>(static_cast<typename Format::Bits>(code), random);
    };
  };
  expect_all_stay(ElementType::kF16, by(NoiseF16{}));
  expect_all_stay(ElementType::kBF16, by(NoiseBF16{}));
  expect_all_stay(ElementType::kE4M3, by(NoiseE4M3{}));
  expect_all_stay(ElementType::kE5M2, by(NoiseE5M2{}));
}

}  // namespace
}  // namespace ttrace
