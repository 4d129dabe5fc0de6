#include "analysis/checks/codes_check.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;

using Numbers = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The numbers of all 256 codes, NaN and infinity among them.
Numbers all_codes(ElementType format) {
  std::array<std::uint8_t, 256> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes.at(i) = static_cast<std::uint8_t>(i);
  }
  Numbers numbers(codes.size());
  to_double(format, codes.data(), std::ssize(numbers), numbers.data());
  return numbers;
}

MergeResult tensor_of(ElementType type, std::vector<std::int64_t> shape, const Numbers& values) {
  MergeResult result;
  result.type = type;
  result.shape = std::move(shape);
  result.storage.resize(values.size() * element_size(type));
  from_double(type, values.data(), std::ssize(values), result.storage.data());
  result.bytes = result.storage;
  return result;
}

// Codes times one scale, rounded as a program does: in f32, then to the type of the tensor.
MergeResult values_of(const Numbers& codes, double scale, ElementType type) {
  Numbers values;
  for (const double code : codes) {
    values.push_back(static_cast<float>(code * scale));
  }
  return tensor_of(type, {std::ssize(codes)}, values);
}

MergeResult scale_of(double scale) {
  return tensor_of(ElementType::kF32, {}, {scale});
}

// `left` and `right`: codes, each with its scale, in BF16.
std::optional<CodesComparison> compared(const Numbers& left,
                                        double of_left,
                                        const Numbers& right,
                                        double of_right) {
  const MergeResult reference = values_of(left, of_left, ElementType::kBF16);
  const MergeResult candidate = values_of(right, of_right, ElementType::kBF16);
  const MergeResult reference_scale = scale_of(of_left);
  const MergeResult candidate_scale = scale_of(of_right);
  return compare_codes({reference, reference_scale}, {candidate, candidate_scale});
}

TEST(Codes, AllOfBothFormatsAreGotBackWhateverTheScaleAndTheType) {
  const std::array<float, 6> scales = {1.0F, 0.0047433F, 3.3333333F, 7.77e-12F, 0x1p-20F, 911.7F};
  for (const ElementType format : {ElementType::kE4M3, ElementType::kE5M2}) {
    const bool is_e4m3 = format == ElementType::kE4M3;
    const Numbers codes = all_codes(format);
    const MergeResult reference = values_of(codes, 1.0, ElementType::kF64);
    const MergeResult one = scale_of(1.0);
    for (const float scale : scales) {
      for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
        const MergeResult candidate = values_of(codes, scale, type);
        const MergeResult candidate_scale = scale_of(scale);
        const auto found = compare_codes({reference, one}, {candidate, candidate_scale});
        ASSERT_TRUE(found.has_value()) << name_of(format) << ' ' << scale;
        // The comparison takes powers of two out of the candidate's codes that the reference's do
        // not have.
        const bool is_power = scale == 0x1p-20F;
        EXPECT_EQ(found->equal, is_power ? (is_e4m3 ? 4 : 10) : 256)
            << name_of(format) << ' ' << scale;
        EXPECT_EQ(found->candidate.format, format);
        EXPECT_EQ(found->candidate.saturated, 2);
        EXPECT_EQ(found->candidate.zero, 2);
        EXPECT_EQ(found->reference.saturated, 2);
        EXPECT_EQ(found->are_powers_of_two, scale == 1.0F || is_power);
      }
    }
  }
}

TEST(Codes, OneThatDiffersIsCounted) {
  Numbers codes = all_codes(ElementType::kE4M3);
  const Numbers expected = codes;
  codes[20] = codes[21];
  EXPECT_EQ(compared(expected, 0.3F, codes, 0.3F)->equal, 255);
}

TEST(Codes, AnotherScaleThatIsAPowerOfTwoMovesTheExponentAlone) {
  const Numbers small = {1.0, 1.125, -3.25, 0.0, 28.0};
  Numbers large = small;
  for (double& code : large) {
    code *= 8.0;
  }
  const auto found = compared(small, 0.0047433F, large, 0.0047433F / 8.0F);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->equal, 5);
  EXPECT_EQ(found->multiples, 1);
  EXPECT_TRUE(keep_codes(*found));
}

TEST(Codes, AScaleNextToAPowerOfTwoTimesTheReferencesIsNone) {
  const Numbers codes = {1.0, 1.125, -3.25, 0.0, 28.0};
  const double next = std::nextafter(0.0094866F, 1.0F);
  const auto found = compared(codes, 0.0047433F, codes, next);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->are_powers_of_two);
  EXPECT_FALSE(keep_codes(*found));
}

TEST(Codes, EveryBlockHasAPowerOfTwoOfItsOwn) {
  // Two rows of 70 features, blocks of 32, the last one shorter.
  const Numbers scales = {0x1p-3, 0x1p4, 0x1p-9, 0x1p0, 0x1p1, 0x1p2};
  const Numbers other = {0x1p-3, 0x1p6, 0x1p-9, 0x1p-1, 0x1p1, 0x1p3};
  Numbers values(140);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double code = static_cast<double>(9 + i % 7) * (i % 2 == 0 ? 1.0 : -1.0);
    values[i] = code * scales[i / 70 * 3 + i % 70 / 32];
  }
  const MergeResult both = tensor_of(ElementType::kBF16, {2, 70}, values);
  const MergeResult left = tensor_of(ElementType::kE8M0, {2, 3}, scales);
  const MergeResult right = tensor_of(ElementType::kE8M0, {2, 3}, other);
  const auto found = compare_codes({both, left}, {both, right});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->equal, 140);
  EXPECT_EQ(found->scales, 6);
  EXPECT_EQ(found->multiples, 3);
  EXPECT_TRUE(found->are_powers_of_two);
}

// `values` of two rows of 64: codes of E2M1 times a scale for every `block` of them.
Numbers in_blocks(const Numbers& scales, std::size_t block) {
  constexpr std::array kNumbers = {0.5, -6.0, 3.0, 0.0, 1.5, -4.0, 2.0};
  Numbers values(128);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = kNumbers.at(i % kNumbers.size()) * scales.at(i / block);
  }
  return values;
}

TEST(Codes, OfFp4HaveBlocksOf32WithPowersOfTwoOrOf16WithScalesInE4m3) {
  const Numbers mx = {0x1p-3, 0x1p4, 0x1p-9, 0x1p0};
  const Numbers nv = {0.875, 3.25, 0.0625, 448.0, 1.0, 5.0, 0.6875, 26.0};
  struct Recipe {
    Numbers scales;
    std::size_t block;
    ElementType type;
  };
  for (const Recipe& recipe :
       {Recipe{mx, 32, ElementType::kE8M0}, Recipe{nv, 16, ElementType::kE4M3}}) {
    const auto per_row = std::ssize(recipe.scales) / 2;
    const Numbers values = in_blocks(recipe.scales, recipe.block);
    Numbers other = values;
    other[5] = 3.0 * recipe.scales[0];  // was -4
    const MergeResult left = tensor_of(ElementType::kBF16, {2, 64}, values);
    const MergeResult right = tensor_of(ElementType::kBF16, {2, 64}, other);
    const MergeResult scale = tensor_of(recipe.type, {2, per_row}, recipe.scales);
    const auto found = compare_codes({left, scale}, {right, scale});
    ASSERT_TRUE(found.has_value()) << name_of(recipe.type);
    EXPECT_EQ(found->reference.format, ElementType::kE2M1);
    EXPECT_EQ(found->candidate.format, ElementType::kE2M1);
    EXPECT_EQ(found->equal, 127);
    EXPECT_EQ(found->reference.saturated, 19);
    EXPECT_TRUE(format_check(*found).holds);
  }
}

// A program that computes in FP4 where the reference has FP8 is found by its errors.
TEST(Codes, NumbersOfFp4AreNumbersOfFp8) {
  const auto found = compared({1.125, 448.0}, 1.0, {1.0, 6.0}, 448.0 / 6.0);
  EXPECT_EQ(found->reference.format, ElementType::kE4M3);
  EXPECT_EQ(found->candidate.format, ElementType::kE4M3);
  EXPECT_EQ(found->equal, 0);
}

TEST(Codes, BlocksFollowFromShapes) {
  EXPECT_THAT(*block_sizes({4, 70}, {}), ElementsAre(4, 70));
  EXPECT_THAT(*block_sizes({4, 70}, {1}), ElementsAre(4, 70));
  EXPECT_THAT(*block_sizes({32, 4, 256}, {32, 4, 2}), ElementsAre(1, 1, 128));
  EXPECT_THAT(*block_sizes({32, 4, 192}, {32, 4, 2}), ElementsAre(1, 1, 128));
  EXPECT_THAT(*block_sizes({32, 4, 192}, {32, 4, 6}), ElementsAre(1, 1, 32));
  EXPECT_THAT(*block_sizes({4, 40}, {4, 3}), ElementsAre(1, 16));
  EXPECT_THAT(*block_sizes({130, 512}, {2, 4}), ElementsAre(128, 128));
  EXPECT_THAT(*block_sizes({130, 512}, {130, 1}), ElementsAre(1, 512));
  EXPECT_EQ(block_sizes({130, 512}, {130}), std::nullopt);
  EXPECT_EQ(block_sizes({130, 512}, {130, 7}), std::nullopt);
  EXPECT_EQ(block_sizes({4, 8}, {5, 1}), std::nullopt);
}

TEST(Codes, SquaresOfAWeightAreTheirRowsAndColumns) {
  const Numbers scales = {0.5, 1.0, 2.0, 4.0};
  Numbers values(130 * 200);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 9.0 * scales[i / 200 / 128 * 2 + i % 200 / 128];
  }
  const MergeResult weight = tensor_of(ElementType::kBF16, {130, 200}, values);
  const MergeResult scale = tensor_of(ElementType::kE8M0, {2, 2}, scales);
  const auto found = compare_codes({weight, scale}, {weight, scale});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reference.format, ElementType::kE4M3);  // 9 is 1.125 x 2^3
  EXPECT_EQ(found->equal, 130 * 200);
}

TEST(Codes, FewOrNoneThatTellTheFormatTakeThatOfTheOtherSide) {
  const auto one_side = compared({1.0, 2.0}, 0.7F, {1.125, 2.0}, 0.7F);
  EXPECT_EQ(one_side->reference.format, ElementType::kE4M3);
  EXPECT_EQ(one_side->candidate.format, ElementType::kE4M3);
  const auto zeros = compared({0.0, -0.0}, 1.0, {0.0, 0.0}, 1.0);
  EXPECT_EQ(zeros->reference.format, zeros->candidate.format);
  EXPECT_EQ(zeros->equal, 2);
  EXPECT_EQ(zeros->reference.zero, 2);
}

TEST(Codes, OfTwoFormatsNoneIsEqual) {
  const auto found = compared({1.125, 448.0}, 1.0, {1.0, 57344.0}, 1.0 / 128.0);
  EXPECT_EQ(found->reference.format, ElementType::kE4M3);
  EXPECT_EQ(found->candidate.format, ElementType::kE5M2);
  EXPECT_EQ(found->equal, 0);
  EXPECT_FALSE(keep_codes(*found));
  EXPECT_EQ(codes_text(*found),
            "E5M2 codes: 1 of 2 saturated and 0 zero; in the reference, E4M3 codes: 1 of 2 "
            "saturated and 0 zero");
}

TEST(Codes, NumbersThatAreNoCodesHaveNone) {
  EXPECT_EQ(compared({1.0, 2.0}, 1.0, {1.03, 2.0}, 1.0), std::nullopt);
  EXPECT_EQ(compared({1.0, 2.0}, 1.0, {1.0, 60000.0}, 1.0), std::nullopt);
}

TEST(Codes, NaNIsACodeOfBothFormatsAndEqualToItself) {
  const auto found = compared({1.0, kNaN}, 1.0, {1.0, kNaN}, 1.0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->equal, 2);
}

TEST(Codes, AScaleThatSaturatesOrLosesMoreThanOneInAThousandKeepsNone) {
  CodesComparison codes;
  codes.elements = 2000;
  codes.multiples = 1;
  codes.are_powers_of_two = true;
  codes.reference.saturated = codes.reference.zero = 10;
  codes.candidate.saturated = codes.candidate.zero = 12;
  EXPECT_TRUE(keep_codes(codes));
  codes.candidate.saturated = 13;
  EXPECT_FALSE(keep_codes(codes));
  codes.candidate.saturated = 0;
  codes.candidate.zero = 13;
  EXPECT_FALSE(keep_codes(codes));
  codes.candidate.zero = 12;
  codes.are_powers_of_two = false;
  EXPECT_FALSE(keep_codes(codes));
}

// --- in a comparison -----------------------------------------------------------------------------

constexpr auto kScale = "s0/m0/scale/fc/0";
constexpr auto kOperand = "s0/m0/operand/fc/0";

// Input of a linear: 64 x 128 numbers whose largest is 3.5, quantised on both sides.
class QuantisedInput : public ::testing::Test {
 protected:
  struct Side {
    double scale = 0.0;
    ElementType format = ElementType::kE4M3;
  };
  static Numbers numbers() {
    Numbers values = testing::wavy(64 * 128, 0.3);
    values[77] = 3.5;
    return values;
  }
  static Numbers quantised(const Side& side) {
    const double largest = side.format == ElementType::kE4M3 ? 448.0 : 57344.0;
    Numbers codes;
    for (const double value : numbers()) {
      codes.push_back(std::clamp(value / side.scale, -largest, largest));
    }
    std::vector<std::uint8_t> bytes(codes.size());
    from_double(side.format, codes.data(), std::ssize(codes), bytes.data());
    to_double(side.format, bytes.data(), std::ssize(codes), codes.data());
    for (double& code : codes) {
      code *= side.scale;
    }
    return codes;
  }
  static void add(TraceBuilder& trace, const Side& side, bool with_operand) {
    trace.add(0, {kScale, {side.scale}});
    if (with_operand) {
      trace.add(0, {kOperand, quantised(side), ElementType::kBF16, {64, 128}});
    }
  }
  // In forced passes, the same input gives the reference's result.
  void compare(const Side& reference, const Side& candidate, bool with_operands = true) {
    std::map<std::string, TraceBuilder> traces;
    for (const std::string name : {"reference", "wide", "native", "candidate"}) {
      traces.emplace(name, TraceBuilder(folder_ / name, name));
      add(traces.at(name), name == "candidate" ? candidate : reference, with_operands);
      traces.at(name).manifest.precision = "fp8";
    }
    static_cast<void>(traces.at("reference").write());
    std::vector<NoiseRow> rows = {testing::noise_row(kScale, 0.0, 0.0)};
    if (with_operands) {
      rows.push_back(testing::noise_row(kOperand, 3.0, 0.5));
    }
    testing::write_noise_passes(folder_ / "reference", rows);
    const ForcedTraces forced{traces.at("wide").write(), traces.at("native").write()};
    DiffOptions options;
    options.forced = &forced;
    report_ = diff(Trace::open(folder_ / "reference"), traces.at("candidate").write(), options);
  }
  [[nodiscard]] std::size_t index_of(const std::string& id) const {
    for (std::size_t i = 0; i < report_.tensors.size(); ++i) {
      if (to_string(report_.tensors[i].id) == id) {
        return i;
      }
    }
    throw std::runtime_error("not in the report: " + id);
  }
  [[nodiscard]] const TensorVerdict& verdict(const std::string& id) const {
    return report_.tensors[index_of(id)];
  }
  [[nodiscard]] std::string explained(const std::string& id) const {
    std::ostringstream out;
    write_text(out, explain(report_, index_of(id)));
    return out.str();
  }

  static constexpr double kRight = 3.5 / 448.0;
  TemporaryDirectory folder_;
  Report report_;
};

TEST_F(QuantisedInput, EqualOnesHaveCodesOnTheOperandAlone) {
  compare({kRight}, {kRight});
  EXPECT_FALSE(report_.diverged());
  EXPECT_FALSE(verdict(kScale).codes.has_value());
  ASSERT_TRUE(verdict(kOperand).codes.has_value());
  EXPECT_EQ(verdict(kOperand).codes->equal, 64 * 128);
  EXPECT_EQ(verdict(kOperand).codes->candidate.saturated, 1);
  EXPECT_THAT(report_.notes, IsEmpty());
}

TEST_F(QuantisedInput, AScaleThatIsTwiceTheReferencesIsHarmlessAndSaidOnce) {
  compare({kRight}, {2.0 * kRight});
  EXPECT_FALSE(report_.diverged());
  EXPECT_EQ(verdict(kScale).status(), Status::kWithin);
  EXPECT_EQ(verdict(kScale).symptom(), Symptom::kNone);
  EXPECT_THAT(verdict(kScale).cause(), IsEmpty());
  EXPECT_EQ(report_.counts().operators_wrong, 0U);
  EXPECT_THAT(report_.notes,
              ElementsAre(AllOf(HasSubstr("1 scale of FP8 operands differs"),
                                HasSubstr("codes keep their bits"))));
  std::ostringstream text;
  write_text(text, report_, {});
  EXPECT_THAT(text.str(), AllOf(HasSubstr("CLEAN"), Not(HasSubstr("of its bound: fc: FP8 scale"))));
  EXPECT_THAT(explained(kOperand), Not(HasSubstr("inf")));
  const Explanation explanation = explain(report_, index_of(kScale));
  EXPECT_EQ(exit_code(explanation), 0);
  EXPECT_WORDING(explanation.sentence);
  EXPECT_THAT(explained(kScale),
              AllOf(HasSubstr("codes: E4M3 codes: 0 of 8192 saturated"),
                    HasSubstr("1 of 1 scale differ from the reference's by a power of two")));
}

TEST_F(QuantisedInput, HalfTheScaleSaturatesAndIsAFindingWithItsCounts) {
  compare({kRight}, {kRight / 8.0});
  ASSERT_TRUE(report_.diverged());
  EXPECT_EQ(to_string(report_.tensors[*report_.first_divergence].id), kScale);
  const CodesComparison& codes = *verdict(kScale).codes;
  EXPECT_FALSE(verdict(kScale).has(Excuse::kHarmlessScale));
  EXPECT_GT(codes.candidate.saturated, 1000);
  EXPECT_EQ(codes.reference.saturated, 1);
  EXPECT_TRUE(verdict(kOperand).is_finding());
  EXPECT_THAT(explained(kScale), HasSubstr("saturated and"));
  EXPECT_THAT(report_.notes, Not(Contains(HasSubstr("power of two"))));
}

TEST_F(QuantisedInput, ANumberThatIsNoPowerOfTwoIsAFinding) {
  compare({kRight}, {1.5 * kRight});
  EXPECT_TRUE(verdict(kScale).is_finding());
  EXPECT_LT(verdict(kScale).codes->equal, 64 * 128 / 2);
}

TEST_F(QuantisedInput, WithoutOperandsAPowerOfTwoIsAFindingToo) {
  compare({kRight}, {2.0 * kRight}, false);
  EXPECT_TRUE(verdict(kScale).is_finding());
  EXPECT_FALSE(verdict(kScale).codes.has_value());
}

TEST_F(QuantisedInput, AnotherFormatIsAFindingWithASentence) {
  compare({kRight}, {3.5 / 57344.0, ElementType::kE5M2});
  EXPECT_TRUE(verdict(kScale).is_finding());
  const TensorVerdict& operand = verdict(kOperand);
  EXPECT_EQ(operand.tier(), Tier::kT0);
  EXPECT_THAT(operand.cause(), HasSubstr("its codes are E5M2, but E4M3 in the reference"));
  ASSERT_TRUE(report_.diagnosis.has_value());
  EXPECT_EQ(report_.diagnosis->signature, Signature::kFp8Scale);
}

TEST_F(QuantisedInput, JsonHasTheCodesOfBothSides) {
  compare({kRight}, {2.0 * kRight});
  std::ostringstream out;
  write_json(out, report_);
  const auto json = nlohmann::json::parse(out.str());
  const auto& scale = json["tensors"][0]["codes"];
  EXPECT_EQ(scale["harmless"], true);
  EXPECT_EQ(scale["elements"], 8192);
  EXPECT_EQ(scale["scales"], 1);
  EXPECT_EQ(scale["power_of_two_multiples"], 1);
  EXPECT_EQ(scale["reference"]["format"], "e4m3");
  EXPECT_EQ(scale["reference"]["saturated"], 1);
  EXPECT_EQ(scale["candidate"]["saturated"], 0);
  EXPECT_EQ(json["tensors"][1]["codes"]["harmless"], false);
}

// A selection decides what is compared, never how it is judged.
TEST_F(QuantisedInput, AHarmlessScaleIsThatToWhoLooksAtScalesAlone) {
  compare({kRight}, {2.0 * kRight});
  DiffOptions options;
  SelectionRules rules;
  rules.kinds = {Kind::kScale};
  options.selection = Selection(rules);
  const Report report =
      diff(Trace::open(folder_ / "reference"), Trace::open(folder_ / "candidate"), options);
  ASSERT_EQ(report.tensors.size(), 1U);
  EXPECT_FALSE(report.diverged());
}

}  // namespace
}  // namespace ttrace
