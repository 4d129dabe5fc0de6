#include "trace/place/fill.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using Shape = std::vector<std::int64_t>;

constexpr const char* kWeight = "decoder.layers.0.mlp.linear_fc1.weight";
constexpr const char* kBias = "decoder.layers.0.mlp.linear_fc1.bias";
constexpr const char* kNorm = "decoder.final_layernorm.weight";

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<double> filled(const Placement& placement,
                           ElementType type = ElementType::kF64,
                           const char* path = kWeight) {
  const std::int64_t count = product(placement.local_shape());
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * element_size(type), 0xff);
  fill(path, placement, 1, default_fill_rule(path), type, bytes.data());
  std::vector<double> values(static_cast<std::size_t>(count));
  to_double(type, bytes.data(), count, values.data());
  return values;
}

// The values are a format: programs on different machines must agree on them.
TEST(Fill, ValuesAreTheOnesOfFormatVersionOne) {
  struct Golden {
    std::uint64_t index;
    double weight, bias, norm;  // k of the three rules
  };
  const std::vector<Golden> golden = {{0, 105, -108, 6},
                                      {1, -4, -67, 12},
                                      {2, -113, 62, 7},
                                      {3, -21, -16, -11},
                                      {4, 116, -80, -4},
                                      {5, -82, 93, 0},
                                      {1000000, -122, 99, -12},
                                      {std::uint64_t{1} << 40, -99, -57, -12},
                                      {~std::uint64_t{0}, 118, 124, -16}};
  for (const Golden& expected : golden) {
    const std::uint64_t index = expected.index;
    EXPECT_EQ(fill_value(kWeight, index, 1, default_fill_rule(kWeight)), expected.weight / 4096);
    EXPECT_EQ(fill_value(kBias, index, 1, default_fill_rule(kBias)), expected.bias / 4096);
    EXPECT_EQ(fill_value(kNorm, index, 7, default_fill_rule(kNorm)), 1 + expected.norm / 128);
  }
}

// Symptom: norms of a model that calls them otherwise began around 0.
TEST(Fill, TheProgramSaysWhatItsNormsAreCalled) {
  EXPECT_EQ(default_fill_rule("h.0.ln_1.weight").center, 0.0);
  EXPECT_EQ(default_fill_rule("h.0.ln_1.weight", {{"norm", "rms* ln_*"}}).center, 1.0);
  EXPECT_EQ(default_fill_rule("decoder.norm.weight", {{"norm", "rms* ln_*"}}).center, 0.0);
}

TEST(Fill, NormWeightsLieAroundOneAndAllElseAroundZero) {
  for (const char* path :
       {kNorm, "a.k_norm.weight", "norm.weight", "decoder.input_layernorm.weight"}) {
    EXPECT_EQ(default_fill_rule(path).center, 1.0) << path;
  }
  for (const char* path : {kWeight,
                           kBias,
                           "decoder.final_layernorm.bias",
                           "norm.linear.weight",
                           "layernorm_weight",
                           "weight",
                           "a.norm"}) {
    EXPECT_EQ(default_fill_rule(path).center, 0.0) << path;
  }
}

TEST(Fill, ValuesSpreadEvenlyOverTheirRange) {
  const std::vector<double> values = filled(whole(Shape{255, 400}));
  std::vector<int> counts(255);
  double squared = 0.0;
  for (const double value : values) {
    squared += value * value;
    const double k = value * 4096;
    ASSERT_EQ(k, std::nearbyint(k));
    ++counts.at(static_cast<std::size_t>(k + 127));
  }
  // 400 expected each; six standard deviations are 120
  EXPECT_THAT(counts, Each(::testing::AllOf(::testing::Gt(280), ::testing::Lt(520))));
  EXPECT_NEAR(std::sqrt(squared / static_cast<double>(values.size())), 0.018, 0.0005);
}

TEST(Fill, PathSeedAndIndexAllMatter) {
  const FillRule rule;
  const auto differing = [&](const std::function<double(std::uint64_t)>& other) {
    int different = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      different += other(i) != fill_value(kWeight, i, 1, rule) ? 1 : 0;
    }
    return different;
  };
  EXPECT_GT(differing([&](std::uint64_t i) { return fill_value(kBias, i, 1, rule); }), 980);
  EXPECT_GT(differing([&](std::uint64_t i) { return fill_value(kWeight, i, 2, rule); }), 980);
  EXPECT_GT(differing([&](std::uint64_t i) { return fill_value(kWeight, i + 1, 1, rule); }), 980);
  EXPECT_EQ(differing([&](std::uint64_t i) { return fill_value(kWeight, i, 1, rule); }), 0);
}

TEST(Fill, EveryPrecisionStartsEqual) {
  for (const char* path : {kWeight, kNorm}) {
    const Placement placement = whole(Shape{16, 33});
    const std::vector<double> exact = filled(placement, ElementType::kF64, path);
    for (const ElementType type : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
      EXPECT_EQ(filled(placement, type, path), exact) << name_of(type);
    }
  }
}

TEST(Fill, AWholeTensorFollowsFillValueInRowMajorOrder) {
  const std::vector<double> values = filled(whole(Shape{3, 5, 7}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], fill_value(kWeight, i, 1, default_fill_rule(kWeight)));
  }
  EXPECT_EQ(filled(whole(Shape{})), std::vector<double>{fill_value(kWeight, 0, 1, FillRule{})});
  EXPECT_TRUE(filled(whole(Shape{3, 0})).empty());
}

// Puts every rank's elements where its placement says; NaN remains where nobody held anything.
class Assembly {
 public:
  explicit Assembly(Shape logical)
      : logical_(std::move(logical)), values_(static_cast<std::size_t>(product(logical_)), NAN) {}

  void add(const Placement& placement) {
    ASSERT_EQ(placement.logical_shape(), logical_) << to_string(placement);
    const std::vector<double> local = filled(placement);
    const std::int64_t columns = placement.dims[1].local_size;
    std::vector<bool> padding(local.size(), true);
    for (const Segment& row : placement.dims[0].segments) {
      for (const Segment& column : placement.dims[1].segments) {
        for (std::int64_t i = 0; i < row.extent; ++i) {
          for (std::int64_t j = 0; j < column.extent; ++j) {
            const auto from =
                static_cast<std::size_t>((row.local + i) * columns + column.local + j);
            const auto to =
                static_cast<std::size_t>((row.logical + i) * logical_[1] + column.logical + j);
            padding[from] = false;
            values_[to] = local[from];
          }
        }
      }
    }
    for (std::size_t i = 0; i < local.size(); ++i) {
      ASSERT_TRUE(!padding[i] || local[i] == 0.0) << "padding " << i << " is " << local[i];
    }
  }

  [[nodiscard]] const std::vector<double>& values() const { return values_; }

 private:
  Shape logical_;
  std::vector<double> values_;
};

TEST(Fill, ShardsOfEveryLayoutAssembleToTheWhole) {
  struct Example {
    const char* dims;
    Shape local, logical;
  };
  const std::vector<Example> examples = {{"v=257[tp] h", {192, 4}, {257, 4}},
                                         {"(2*f[tp]) h", {8, 6}, {16, 6}},
                                         {"o h[tp]", {5, 6}, {5, 12}},
                                         {"f[cp] h[tp]", {3, 4}, {6, 8}},
                                         {"f=7[tp,cp] h", {2, 3}, {7, 3}},
                                         {"s[cp:zigzag] (g=3*d[tp])", {4, 6}, {8, 12}}};
  for (const Example& example : examples) {
    Assembly assembly(example.logical);
    for (int tp = 0; tp < 2; ++tp) {
      for (int cp = 0; cp < 2; ++cp) {
        const Layout layout = Layout{}.add("tp", 2, tp).add("cp", 2, cp);
        const DimsSpec dims = parse_dims(example.dims);
        Shape local = example.local;
        if (dims.dims[0][0].size == 7) {
          local[0] = tp == 1 && cp == 1 ? 1 : 2;  // 7 = (2 + 2) + (2 + 1)
        }
        assembly.add(place(dims, local, layout));
      }
    }
    EXPECT_EQ(assembly.values(), filled(whole(example.logical))) << example.dims;
  }
}

TEST(Fill, RefusesRulesOffTheBf16Grid) {
  const auto error_of = [](const FillRule& rule) -> std::string {
    double value = 0.0;
    try {
      fill(kWeight, whole(Shape{1}), 1, rule, ElementType::kF64, &value);
    } catch (const UsageError& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(error_of({0.0, -12, 128}), "");
  EXPECT_EQ(error_of({1.0, -7, 128}), "");
  EXPECT_EQ(error_of({0.0, -133, 127}), "");  // subnormal numbers of BF16
  EXPECT_THAT(error_of({0.0, -12, 129}), HasSubstr("range 129"));
  EXPECT_THAT(error_of({0.0, -12, -1}), HasSubstr("range -1"));
  EXPECT_THAT(error_of({1.0, -8, 4}), HasSubstr("BF16 cannot hold"));
  EXPECT_THAT(error_of({1.0, -9, 128}), HasSubstr("BF16 cannot hold"));  // its ends alone fit
  EXPECT_THAT(error_of({0.1, -7, 4}), HasSubstr(kWeight));
  EXPECT_THAT(error_of({0.0, -134, 1}), HasSubstr("BF16 cannot hold"));
  EXPECT_THAT(error_of({0.0, 127, 2}), HasSubstr("BF16 cannot hold"));
  EXPECT_THAT(error_of({NAN, -7, 4}), HasSubstr("BF16 cannot hold"));
  EXPECT_THROW((void)fill_value(kWeight, 0, 1, {1.0, -8, 4}), UsageError);
}

TEST(Fill, RefusesIntegersPartialSumsAndScales) {
  double value = 0.0;
  const auto refused = [&](const char* placement, ElementType type) {
    EXPECT_THROW(fill(kWeight, parse_placement(placement), 1, FillRule{}, type, &value), UsageError)
        << placement;
  };
  refused("1", ElementType::kI64);
  refused("1", ElementType::kBool);
  refused("1 partial=0/2:tp", ElementType::kF64);
  refused("1 scale=0x1p-1", ElementType::kF64);
}

}  // namespace
}  // namespace ttrace
