#include "trace/place/boxes.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Shape = std::vector<std::int64_t>;

std::string placed(const std::string& dims,
                   const Shape& local_shape,
                   const Layout& layout,
                   const Sizes& sizes = {}) {
  return to_string(place(parse_dims(dims), local_shape, layout, sizes));
}

Layout rank_of(const std::string& axis, int size, int coordinate) {
  return Layout{}.add(axis, size, coordinate);
}

template <class Call>
std::string usage_error(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.message();
  }
  ADD_FAILURE() << "no UsageError";
  return "";
}

// ---- Grammar.

TEST(DimsGrammar, ReadsFactorsSizesAndUses) {
  const DimsSpec dims =
      parse_dims("s[cp:zigzag,sp] (2*f[tp]) v=257[tp2:partial] 1 # ep:replicated");
  ASSERT_EQ(dims.dims.size(), 4u);
  const DimFactor& s = dims.dims[0][0];
  EXPECT_EQ(s.name, "s");
  ASSERT_EQ(s.axes.size(), 2u);
  EXPECT_EQ(s.axes[0].axis, "cp");
  EXPECT_EQ(s.axes[0].sharding, Sharding::kZigzag);
  EXPECT_EQ(s.axes[1].sharding, Sharding::kContiguous);
  ASSERT_EQ(dims.dims[1].size(), 2u);
  EXPECT_EQ(dims.dims[1][0].size, 2);
  EXPECT_EQ(dims.dims[1][0].name, "");
  EXPECT_EQ(dims.dims[1][1].name, "f");
  EXPECT_EQ(dims.dims[2][0].size, 257);
  EXPECT_EQ(dims.dims[2][0].axes[0].sharding, Sharding::kPartial);
  EXPECT_EQ(dims.dims[3][0].size, 1);
  EXPECT_THAT(dims.replicated, ElementsAre("ep"));
}

TEST(DimsGrammar, PrintsWhatItReads) {
  for (const std::string text : {"s b h",
                                 "s[cp:zigzag,sp] b h[tp:partial]",
                                 "(2*f[tp]) h",
                                 "(g=1*x*64) 1 v=257[tp]",
                                 "s b h # ep:replicated tp:replicated"}) {
    EXPECT_EQ(to_string(parse_dims(text)), text);
  }
  EXPECT_EQ(to_string(parse_dims("  s[cp:natural]  h[tp:sharded,dp:contiguous] #ep:replicated ")),
            "s[cp] h[tp,dp] # ep:replicated");
}

TEST(DimsGrammar, ErrorsQuoteTheTextAndPointAtTheWord) {
  const std::vector<std::string> wrong = {"s b h[tp",
                                          "s b h]",
                                          "s b h[]",
                                          "s b h[tp:]",
                                          "s b h[tp:zig]",
                                          "s b (h",
                                          "s b (h*)",
                                          "s b ()",
                                          "s b h[tp]x",
                                          "s b v=",
                                          "s b v=0",
                                          "s b v=-1",
                                          "s b 0",
                                          "s b h[2]",
                                          "s b 2x",
                                          "s b h-1",
                                          "s b h[tp cp]",
                                          "s b (2 * f)",
                                          "s b h[tp:zigzagged]",
                                          "s b h # ep",
                                          "s b h # ep:zigzag",
                                          "s b h # ep:replicated,dp:replicated"};
  for (const std::string& text : wrong) {
    const std::string message = usage_error([&] { (void)parse_dims(text); });
    EXPECT_THAT(message, AllOf(HasSubstr("\"" + text + "\""), HasSubstr("word \"")));
  }
  EXPECT_THAT(usage_error([] { (void)parse_dims("s b h[tp:zig]"); }),
              AllOf(HasSubstr("word \"h[tp:zig]\""), HasSubstr("at \"zig]\"")));
  EXPECT_THAT(usage_error([] { (void)parse_dims("  "); }), HasSubstr("name no dimension"));
}

// Symptom: the gradients of a scalar parameter, such as the scale of a contrastive loss, are
// addends over the ranks, and no dims could say so: "ranks hold different values".
TEST(DimsGrammar, AScalarMayBeASum) {
  const DimsSpec dims = parse_dims("# dp:partial tp:replicated");
  EXPECT_THAT(dims.dims, IsEmpty());
  EXPECT_EQ(to_string(dims), "# dp:partial tp:replicated");
  EXPECT_EQ(to_string(parse_dims("#")), "#");
  EXPECT_EQ(to_string(parse_dims("a # dp:partial")), "a # dp:partial");
  Layout layout;
  layout.rank = 1;
  layout.world_size = 2;
  layout.add("dp", 2, 1);
  const Placement placement = place(dims, {}, layout);
  EXPECT_EQ(placement.partial_index, 1);
  EXPECT_EQ(placement.partial_count, 2);
  EXPECT_EQ(placement.partial_over, "dp");
}

TEST(DimsGrammar, AnAxisStandsThereOnce) {
  for (const char* text : {"s[tp] h[tp]",
                           "s[tp,tp]",
                           "s[tp] h[tp:partial]",
                           "(a[tp]*b[tp])",
                           "s[tp] # tp:replicated"}) {
    EXPECT_THAT(usage_error([&] { (void)parse_dims(text); }), HasSubstr("\"tp\" occurs twice"));
  }
}

TEST(DimsGrammar, FindsThePlainDimension) {
  const DimsSpec dims = parse_dims("(b*x) s b[dp] h");
  EXPECT_EQ(dims.index_of("b"), 2u);
  EXPECT_EQ(dims.index_of("x"), std::nullopt);
}

// ---- Placement.

TEST(Dims, WithoutAxesEveryTensorIsWhole) {
  EXPECT_EQ(placed("s[cp:zigzag,sp] b (2*f[tp]) v[tp2:partial]", {8, 2, 12, 3}, Layout{}),
            "8 2 12 3");
}

TEST(Dims, ContiguousGivesRankItsChunk) {
  EXPECT_EQ(placed("s b h[tp]", {8, 2, 16}, rank_of("tp", 4, 2)), "8 2 64/16:0+32+16");
}

TEST(Dims, ZigzagGivesRankItsTwoChunks) {
  EXPECT_EQ(placed("s[cp:zigzag]", {8}, rank_of("cp", 2, 0)), "16/8:0+0+4,4+12+4");
  EXPECT_EQ(placed("s[cp:zigzag]", {8}, rank_of("cp", 2, 1)), "16/8:0+4+8");
}

TEST(Dims, SeveralAxesCutFromLeftToRight) {
  const auto on = [](int cp, int sp) {
    Layout layout;
    layout.add("tp", 2, sp).add("sp", 2, sp, "tp").add("cp", 2, cp);
    return placed("s[cp:zigzag,sp]", {4}, layout);
  };
  EXPECT_EQ(on(0, 0), "16/4:0+0+4");
  EXPECT_EQ(on(0, 1), "16/4:0+12+4");
  EXPECT_EQ(on(1, 0), "16/4:0+4+4");
  EXPECT_EQ(on(1, 1), "16/4:0+8+4");
  Layout layout;
  layout.add("a", 2, 1).add("b", 3, 2);
  EXPECT_EQ(placed("h[a,b]", {2}, layout), "12/2:0+10+2");
  EXPECT_EQ(placed("h[b,a]", {2}, layout), "12/2:0+10+2");
  EXPECT_EQ(placed("h[a:zigzag,b]", {4}, layout), "24/4:0+14+4");
  EXPECT_EQ(placed("h[b,a:zigzag]", {4}, layout), "24/4:0+18+4");
}

TEST(Dims, PaddingLiesAtTheEndOfTheLastRank) {
  EXPECT_EQ(placed("v=257[tp] h", {192, 4}, rank_of("tp", 2, 0)), "257/192:0+0+192 4");
  EXPECT_EQ(placed("v=257[tp] h", {192, 4}, rank_of("tp", 2, 1)), "257/192:0+192+65 4");
}

TEST(Dims, ARankCanHoldNothingButPadding) {
  EXPECT_EQ(placed("v=10[tp]", {5}, rank_of("tp", 4, 2)), "10/5:");
}

TEST(Dims, PaddingWithoutACutLiesAtTheEnd) {
  EXPECT_EQ(placed("v[tp] h", {384, 4}, Layout{}, {{"v", 257}}), "257/384:0+0+257 4");
}

TEST(Dims, UnevenShardsFollowTheCeilRule) {
  for (const auto& [coordinate, local, text] :
       std::vector<std::tuple<int, std::int64_t, std::string>>{
           {0, 3, "10/3:0+0+3"}, {2, 3, "10/3:0+6+3"}, {3, 1, "10/1:0+9+1"}}) {
    EXPECT_EQ(placed("v=10[tp]", {local}, rank_of("tp", 4, coordinate)), text);
  }
  EXPECT_EQ(placed("v=9[tp]", {0}, rank_of("tp", 4, 3)), "9/0:");
}

TEST(Dims, UnevenShardsOfTwoAxes) {
  const auto on = [](int tp, int dp, std::int64_t local) {
    return placed("h=20[tp,dp]", {local}, Layout{}.add("tp", 2, tp).add("dp", 4, dp));
  };
  EXPECT_EQ(on(0, 0, 3), "20/3:0+0+3");
  EXPECT_EQ(on(0, 3, 1), "20/1:0+9+1");
  EXPECT_EQ(on(1, 0, 3), "20/3:0+10+3");
  EXPECT_EQ(on(1, 3, 1), "20/1:0+19+1");
}

TEST(Dims, PaddedShardsOfTwoAxesDivideThePaddedWhole) {
  const auto on = [](int tp, int dp) {
    return placed("v=257[tp,dp]", {96}, Layout{}.add("tp", 2, tp).add("dp", 2, dp));
  };
  EXPECT_EQ(on(0, 1), "257/96:0+96+96");
  EXPECT_EQ(on(1, 0), "257/96:0+192+65");
  EXPECT_EQ(on(1, 1), "257/96:");
}

TEST(Dims, TheWordsSizeWinsOverTheSizesOfTheRun) {
  EXPECT_EQ(placed("v[tp]", {4}, rank_of("tp", 2, 1), {{"v", 7}}), "7/4:0+4+3");
  EXPECT_EQ(placed("v=8[tp]", {4}, rank_of("tp", 2, 1), {{"v", 7}}), "8/4:0+4+4");
}

TEST(Dims, GatedFc1HasAGateAndAnUpBlockOnEveryRank) {
  EXPECT_EQ(placed("(2*f[tp]) h", {8, 3}, rank_of("tp", 2, 1)), "16/8:0+4+4,4+12+4 3");
  EXPECT_EQ(placed("(2*f[tp]) h", {16, 3}, Layout{}), "16 3");
}

TEST(Dims, NamedFactorTakesItsSizeFromTheRun) {
  const DimsSpec dims = parse_dims("(g*f[tp]) h");
  const Layout layout = rank_of("tp", 2, 1);
  EXPECT_EQ(to_string(place(dims, Shape{8, 3}, layout, {{"g", 2}})), "16/8:0+4+4,4+12+4 3");
  EXPECT_EQ(to_string(place(dims, Shape{8, 3}, layout, {{"g", 1}})), "16/8:0+8+8 3");
}

TEST(Dims, FusedFactorsKeepTheLeftOneSlowest) {
  // groups of (queries, key, value) cut by group: one contiguous block per rank
  EXPECT_EQ(placed("(g[tp]*6) h", {12, 3}, rank_of("tp", 2, 1)), "24/12:0+12+12 3");
  EXPECT_EQ(placed("(s[cp:zigzag]*b=2)", {8}, rank_of("cp", 2, 0)), "16/8:0+0+4,4+12+4");
  EXPECT_EQ(placed("(3*f[tp]*2)", {12}, rank_of("tp", 2, 1)), "24/12:0+4+4,4+12+4,8+20+4");
}

TEST(Dims, FusedFactorMayBePadded) {
  EXPECT_EQ(placed("(2*f=5[tp])", {6}, rank_of("tp", 2, 1)), "10/6:0+3+2,3+8+2");
}

TEST(Dims, FusedFactorsOfWhichARankHoldsNothing) {
  EXPECT_EQ(placed("(g=2[tp]*f=4)", {0}, rank_of("tp", 3, 2)), "8/0:");
  EXPECT_EQ(placed("(g=2[tp]*f=4[cp])", {0}, rank_of("tp", 3, 2)), "8/0:");
}

TEST(Dims, PartialOnAnyDimensionDoesNotCut) {
  EXPECT_EQ(placed("s b h[tp:partial]", {8, 2, 16}, rank_of("tp", 4, 2)), "8 2 16 partial=2/4:tp");
  EXPECT_EQ(placed("s[tp:partial] b h", {8, 2, 16}, rank_of("tp", 4, 0)), "8 2 16 partial=0/4:tp");
}

TEST(Dims, PartialOverSeveralAxesNumbersTheAddends) {
  Layout layout;
  layout.add("tp", 2, 1).add("cp", 3, 2).add("ep", 1, 0).add("dp", 2, 1);
  EXPECT_EQ(placed("h[cp:partial,dp] f[ep:partial,tp:partial]", {4, 4}, layout),
            "8/4:0+4+4 4 partial=5/6:cp,tp");
}

TEST(Dims, FollowerAndLeaderCannotCutOneTensor) {
  Layout layout;
  layout.add("tp", 2, 1).add("sp", 2, 1, "tp");
  for (const char* text : {"s[sp] b h[tp]", "s[sp] b h[tp:partial]", "s[tp,sp] b h"}) {
    const std::string message = usage_error([&] {
      (void)place(parse_dims(text), Shape{4, 2, 8}, layout);
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr(text),
                      HasSubstr("\"sp\""),
                      HasSubstr("\"tp\""),
                      HasSubstr("same coordinate")));
  }
  EXPECT_EQ(placed("s[sp] b h", {4, 2, 8}, layout), "8/4:0+4+4 2 8");
  EXPECT_EQ(placed("s[sp] b h[tp]", {4, 2, 8}, rank_of("tp", 2, 1)), "4 2 16/8:0+8+8");
}

TEST(Dims, RankMismatchNamesBothCounts) {
  EXPECT_THAT(usage_error([] {
                (void)placed("s b h", {4, 8}, Layout{});
              }),
              AllOf(HasSubstr("3 dimensions"), HasSubstr("[4, 8]")));
}

TEST(Dims, SizeMismatchNamesEverythingThatClashes) {
  const std::string message = usage_error([] {
    (void)placed("s v=257[tp] h", {4, 100, 8}, rank_of("tp", 2, 1));
  });
  for (const char* part : {"\"s v=257[tp] h\"",
                           "dimension 1",
                           "local size 100",
                           "logical size 257",
                           "tp (size 2, coordinate 1)",
                           "holds 128",
                           "correct"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(Dims, SizesThatContradictAreRefused) {
  const auto refused = [](const std::string& dims, std::int64_t local, const Layout& layout) {
    EXPECT_THROW((void)placed(dims, {local}, layout), UsageError) << dims << " " << local;
  };
  refused("4", 3, Layout{});
  refused("h=8", 7, Layout{});
  refused("h=8[tp]", 3, rank_of("tp", 2, 0));
  refused("h=10[tp]", 2, rank_of("tp", 4, 3));      // neither the 1 that is left nor padded to 3
  refused("s[cp:zigzag]", 7, rank_of("cp", 2, 0));  // two chunks of one size need an even number
  refused("(2*f[tp])", 7, rank_of("tp", 2, 0));
  refused("(a*b)", 8, Layout{});
  refused("(2*f=4[tp])", 2, rank_of("tp", 2, 0));
  refused("(g=2[tp]*f)", 4, rank_of("tp", 3, 2));  // this rank holds none of g's 2
}

// Sizes overflowed 64 bits, and the placement had a negative size.
TEST(Dims, SizesBeyondAnyTensorAreRefused) {
  const auto place_huge = [] {
    return placed("(2*f[tp])", {std::int64_t{1} << 59}, rank_of("tp", 8, 1));
  };
  EXPECT_THAT(usage_error(place_huge), HasSubstr("more than a tensor can have"));
  const auto place_named = [] {
    return placed("v[tp]", {4}, rank_of("tp", 2, 1), {{"v", INT64_MAX}});
  };
  EXPECT_THAT(usage_error(place_named), HasSubstr("more than a tensor can have"));
}

// A wrong size made millions of segments, each printed into the index.
TEST(Dims, FastFactorCutWithinManyIndicesIsRefused) {
  const auto place_pieces = [] {
    return placed("(s*v=8[cp])", {std::int64_t{4} << 21}, rank_of("cp", 2, 1));
  };
  EXPECT_THAT(usage_error(place_pieces), HasSubstr("falls into more than 65536 pieces"));
}

TEST(Dims, TwoFactorsOfUnknownSizeAreBothNamed) {
  EXPECT_THAT(usage_error([] { (void)placed("(a*2*b[tp])", {8}, Layout{}); }),
              AllOf(HasSubstr("\"a\""), HasSubstr("\"b[tp]\""), HasSubstr("under sizes")));
}

// ---- Property: whatever the layout, the ranks' segments cover every logical element once.

enum class Style { kEven, kUneven, kPadded };

struct CaseFactor {
  std::int64_t unit = 1;     // local size, half of it with a zigzag; kUneven: logical size
  std::int64_t missing = 0;  // kPadded: logical elements that are missing in the last shards
  Style style = Style::kEven;
  std::vector<AxisUse> axes;
};

// Dimensions, each a product of factors, on a run with these axes.
struct Case {
  std::vector<std::pair<std::string, int>> axes;
  std::vector<std::vector<CaseFactor>> dims;
};

int axis_size(const Case& c, const std::string& name) {
  const auto found = std::find_if(
      c.axes.begin(), c.axes.end(), [&](const auto& axis) { return axis.first == name; });
  return found == c.axes.end() ? 1 : found->second;
}

std::int64_t shards(const Case& c, const CaseFactor& factor) {
  std::int64_t product = 1;
  for (const AxisUse& use : factor.axes) {
    product *= use.sharding == Sharding::kPartial ? 1 : axis_size(c, use.axis);
  }
  return product;
}

std::int64_t even_local(const CaseFactor& factor) {
  const bool zigzag = std::any_of(factor.axes.begin(), factor.axes.end(), [](const AxisUse& use) {
    return use.sharding == Sharding::kZigzag;
  });
  return factor.unit * (zigzag ? 2 : 1);
}

std::int64_t logical_size(const Case& c, const CaseFactor& factor) {
  if (factor.style == Style::kUneven) {
    return factor.unit;
  }
  const std::int64_t padded = even_local(factor) * shards(c, factor);
  return std::max<std::int64_t>(1, padded - factor.missing);
}

std::int64_t local_size(const Case& c, const CaseFactor& factor, const Layout& layout) {
  if (factor.style != Style::kUneven || factor.axes.empty()) {
    return factor.style == Style::kUneven ? factor.unit : even_local(factor);
  }
  const std::int64_t chunk = (factor.unit + shards(c, factor) - 1) / shards(c, factor);
  const std::int64_t start = chunk * layout.coordinate(factor.axes.front().axis);
  return std::clamp<std::int64_t>(factor.unit - start, 0, chunk);
}

// Sizes are in the text where they do not follow from the local ones.
DimsSpec spec_of(const Case& c) {
  DimsSpec spec;
  for (const auto& factors : c.dims) {
    auto& word = spec.dims.emplace_back();
    for (std::size_t i = 0; i < factors.size(); ++i) {
      DimFactor factor{"d" + std::to_string(spec.dims.size()) + "_" + std::to_string(i), {}, {}};
      if (i > 0 || factors[i].style != Style::kEven) {
        factor.size = logical_size(c, factors[i]);
      }
      factor.axes = factors[i].axes;
      word.push_back(factor);
    }
  }
  return spec;
}

std::vector<Layout> ranks_of(const Case& c) {
  std::vector<Layout> ranks(1);
  for (const auto& [name, size] : c.axes) {
    std::vector<Layout> finer;
    for (const Layout& layout : ranks) {
      for (int coordinate = 0; coordinate < size; ++coordinate) {
        finer.push_back(Layout(layout).add(name, size, coordinate));
      }
    }
    ranks = std::move(finer);
  }
  return ranks;
}

// Counts how often each logical element of the addend is held; `size` elements in all.
void count_held(const Placement& placement, std::vector<int>& held) {
  const Shape shape = placement.logical_shape();
  for (const Rectangle& box : rectangles(placement)) {
    const std::int64_t elements =
        std::accumulate(box.extent.begin(), box.extent.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t rest = i;
      std::int64_t position = 0;
      std::int64_t stride = 1;
      for (std::size_t dim = shape.size(); dim-- > 0;) {
        position += (box.logical_start[dim] + rest % box.extent[dim]) * stride;
        rest /= box.extent[dim];
        stride *= shape[dim];
      }
      ++held.at(static_cast<std::size_t>(position));
    }
  }
}

// The error of a case, or nothing. An axis that the dims do not use replicates.
std::optional<std::string> defect_of(const Case& c) {
  const DimsSpec spec = parse_dims(to_string(spec_of(c)));
  Shape logical;
  std::int64_t elements = 1;
  for (const auto& factors : c.dims) {
    logical.push_back(1);
    for (const CaseFactor& factor : factors) {
      logical.back() *= logical_size(c, factor);
    }
    elements *= logical.back();
  }
  int copies = 1;
  for (const auto& [name, size] : c.axes) {
    copies *= to_string(spec).find(name) == std::string::npos ? size : 1;
  }
  std::vector<std::vector<int>> held;  // by addend
  for (const Layout& layout : ranks_of(c)) {
    Shape local;
    for (const auto& factors : c.dims) {
      local.push_back(1);
      for (const CaseFactor& factor : factors) {
        local.back() *= local_size(c, factor, layout);
      }
    }
    const Placement placement = place(spec, local, layout);
    validate(placement);
    if (placement.local_shape() != local || placement.logical_shape() != logical) {
      return "shapes differ in " + to_string(placement);
    }
    if (parse_placement(to_string(placement)) != placement) {
      return "text does not round-trip: " + to_string(placement);
    }
    held.resize(static_cast<std::size_t>(placement.partial_count),
                std::vector<int>(static_cast<std::size_t>(elements)));
    count_held(placement, held[static_cast<std::size_t>(placement.partial_index)]);
  }
  for (const std::vector<int>& counts : held) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] != copies) {
        return "logical element " + std::to_string(i) + " is held " + std::to_string(counts[i]) +
               " times instead of " + std::to_string(copies);
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> defect_or_error(const Case& c) {
  try {
    return defect_of(c);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// All cases that are one step simpler.
std::vector<Case> simpler(const Case& c) {
  std::vector<Case> result;
  const auto with = [&](const std::function<void(Case&)>& change) {
    change(result.emplace_back(c));
  };
  for (std::size_t a = 0; a < c.axes.size(); ++a) {
    if (c.axes[a].second > 1) {
      with([&](Case& s) { --s.axes[a].second; });
    }
  }
  for (std::size_t d = 0; d < c.dims.size(); ++d) {
    if (c.dims.size() > 1) {
      with([&](Case& s) { s.dims.erase(s.dims.begin() + static_cast<std::ptrdiff_t>(d)); });
    }
    for (std::size_t f = 0; f < c.dims[d].size(); ++f) {
      const CaseFactor& factor = c.dims[d][f];
      if (c.dims[d].size() > 1) {
        with([&](Case& s) { s.dims[d].erase(s.dims[d].begin() + static_cast<std::ptrdiff_t>(f)); });
      }
      if (factor.unit > 1) {
        with([&](Case& s) { --s.dims[d][f].unit; });
      }
      if (factor.missing > 0) {
        with([&](Case& s) { --s.dims[d][f].missing; });
      }
      if (!factor.axes.empty()) {
        with([&](Case& s) { s.dims[d][f].axes.pop_back(); });
      }
    }
  }
  return result;
}

Case shrink(Case failing) {
  while (true) {
    const std::vector<Case> candidates = simpler(failing);
    const auto smaller = std::find_if(candidates.begin(), candidates.end(), [](const Case& c) {
      return defect_or_error(c).has_value();
    });
    if (smaller == candidates.end()) {
      return failing;
    }
    failing = *smaller;
  }
}

class CaseGenerator {
 public:
  explicit CaseGenerator(std::uint32_t seed) : random_(seed) {}

  Case generate() {
    Case c;
    for (const char* name : {"tp", "cp", "dp", "ep"}) {
      c.axes.emplace_back(name, below(3) + 1);
    }
    free_axes_ = {"tp", "cp", "dp", "ep"};
    std::shuffle(free_axes_.begin(), free_axes_.end(), random_);
    const int dims = below(3) + 1;
    for (int d = 0; d < dims; ++d) {
      const int factors = below(3) == 0 ? 2 : 1;
      auto& word = c.dims.emplace_back();
      for (int f = 0; f < factors; ++f) {
        word.push_back(factor(c, factors == 1));
      }
    }
    return c;
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint32_t>(end)); }

  CaseFactor factor(const Case& c, bool plain) {
    CaseFactor result;
    result.unit = below(4) + 1;
    const int uses = std::min<int>(below(3), static_cast<int>(free_axes_.size()));
    for (int u = 0; u < uses; ++u) {
      result.axes.push_back({free_axes_.back(), static_cast<Sharding>(below(3))});
      free_axes_.pop_back();
    }
    // Shards that are not all full: of one axis, and without other factors, whose local sizes
    // would vary too.
    const bool one_cut = plain && uses == 1 && result.axes[0].sharding != Sharding::kPartial;
    if (one_cut && below(2) == 0) {
      result.style = Style::kPadded;
      result.missing = below(static_cast<int>(even_local(result) * shards(c, result)));
    } else if (one_cut && result.axes[0].sharding == Sharding::kContiguous && below(2) == 0) {
      result.style = Style::kUneven;
      result.unit = below(12) + 1;
    }
    return result;
  }

  std::mt19937 random_;
  std::vector<std::string> free_axes_;
};

TEST(DimsProperty, RanksOfRandomLayoutsCoverEveryElementOnce) {
  CaseGenerator generator(20240917);
  for (int i = 0; i < 2000; ++i) {
    const Case c = generator.generate();
    if (defect_or_error(c)) {
      const Case small = shrink(c);
      std::string layout;
      for (const auto& [name, size] : small.axes) {
        layout += " " + name + "=" + std::to_string(size);
      }
      FAIL() << "case " << i << ", smallest: \"" << to_string(spec_of(small)) << "\" on" << layout
             << ": " << *defect_or_error(small);
    }
  }
}

}  // namespace
}  // namespace ttrace
