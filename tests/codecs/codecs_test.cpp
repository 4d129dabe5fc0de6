// TTrace's conversions of one-byte formats against the table that fp8_codes.py makes with gfloat.
#include <ttrace/element_type.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace ttrace {
namespace {

struct Row {
  std::string task;  // "decode" or "encode"
  std::string format;
  unsigned code = 0;
  std::string value;  // "nan" and "inf" included
};

double number(const Row& row) {
  return std::strtod(row.value.c_str(), nullptr);
}

template <class Check>
std::map<std::string, int> for_each_row(const std::string& task, const Check& check) {
  std::ifstream in(TTRACE_FP8_CODES);
  std::map<std::string, int> rows;
  Row row;
  while (in >> row.task >> row.format >> row.code >> row.value) {
    if (row.task == task) {
      ++rows[row.format];
      check(row);
    }
  }
  return rows;
}

TEST(Fp8Codes, EveryCodeStandsForTheNumberThatGfloatGivesIt) {
  const auto rows = for_each_row("decode", [](const Row& row) {
    const auto code = static_cast<std::uint8_t>(row.code);
    double value = 0.0;
    to_double(parse_element_type(row.format), &code, 1, &value);
    if (std::isnan(number(row))) {
      EXPECT_TRUE(std::isnan(value)) << row.format << " " << row.code;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(number(row)))
          << row.format << " " << row.code;
    }
  });
  const std::map<std::string, int> all = {{"e4m3", 256}, {"e5m2", 256}, {"e8m0", 256}};
  EXPECT_EQ(rows, all);
}

TEST(Fp8Codes, NumbersRoundToTheCodeThatGfloatGivesThem) {
  const auto rows = for_each_row("encode", [](const Row& row) {
    const double value = number(row);
    std::uint8_t code = 0;
    from_double(parse_element_type(row.format), &value, 1, &code);
    EXPECT_EQ(code, row.code) << row.format << " " << row.value;
  });
  EXPECT_GT(rows.at("e4m3"), 200000);
  EXPECT_GT(rows.at("e5m2"), 200000);
  EXPECT_GT(rows.at("e8m0"), 200);
}

}  // namespace
}  // namespace ttrace
