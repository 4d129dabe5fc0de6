#include "analysis/guess/guess.h"

#include "analysis/rename/rename_map.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<double> part_of(const std::vector<double>& values,
                            std::size_t first,
                            std::size_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

std::vector<double> transposed(const std::vector<double>& values, std::size_t rows) {
  const std::size_t columns = values.size() / rows;
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      result[j * rows + i] = values[i * columns + j];
    }
  }
  return result;
}

class GuessTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Also says what the map makes of names.
  MapGuess guess() {
    const MapGuess result = guess_map(reference_.write(), candidate_.write());
    map_ = RenameMap::parse(result.text);
    return result;
  }

  [[nodiscard]] std::vector<std::string> candidates_of(const std::string& id) const {
    std::vector<std::string> names;
    for (const TensorId& found : map_.find(Names::kReference, parse_tensor_id(id)).candidate) {
      names.push_back(to_string(found));
    }
    return names;
  }

  void add_linear(TraceBuilder& side,
                  const std::string& path,
                  const std::string& taken,
                  const std::vector<double>& weight,
                  double phase) {
    side.add(0, {"s0/param/" + path + ".weight/0", weight, ElementType::kF32, {3, 3}});
    side.add(0, {"s0/m0/output/" + path + "/0", wavy(6, phase), ElementType::kF32, {2, 3}});
    side.edge(0, "s0/m0/input/" + path + "/0", taken);
  }

  std::string folder_ =
      ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  TraceBuilder reference_{folder_ + "/reference", "reference"};
  TraceBuilder candidate_{folder_ + "/candidate", "candidate"};
  RenameMap map_ = RenameMap::parse("tensors: []");
};

TEST_F(GuessTest, WeightsInGroupsAreTakenApart) {
  const std::vector<double> joint = wavy(24);  // [q q k v] of three numbers each, twice
  std::vector<double> q = part_of(joint, 0, 6);
  std::vector<double> k = part_of(joint, 6, 3);
  std::vector<double> v = part_of(joint, 9, 3);
  for (const double number : part_of(joint, 12, 6)) {
    q.push_back(number);
  }
  for (const double number : part_of(joint, 18, 3)) {
    k.push_back(number);
  }
  for (const double number : part_of(joint, 21, 3)) {
    v.push_back(number);
  }
  reference_.add(0, {"s0/param/attn.q.weight/0", q, ElementType::kF32, {4, 3}});
  reference_.add(0, {"s0/param/attn.k.weight/0", k, ElementType::kF32, {2, 3}});
  reference_.add(0, {"s0/param/attn.v.weight/0", v, ElementType::kF32, {2, 3}});
  candidate_.add(0, {"s0/param/mixer.qkv.weight/0", joint, ElementType::kF32, {8, 3}});
  const MapGuess result = guess();
  EXPECT_EQ(result.open, 0U) << result.text;
  EXPECT_EQ(result.certain, 4U) << result.text;
  EXPECT_THAT(candidates_of("s0/param/attn.k.weight/0"),
              ElementsAre("s0/param/mixer.qkv.weight/0"));
  const Counterparts whole =
      map_.find(Names::kCandidate, parse_tensor_id("s0/param/mixer.qkv.weight/0"));
  EXPECT_EQ(whole.reference.size(), 3U);
  EXPECT_EQ(map_.fusion(*whole.rule).groups, 2);
  EXPECT_THAT(map_.fusion(*whole.rule).ratio, ElementsAre(2, 1, 1));
}

TEST_F(GuessTest, TransposedWeightIsFoundWithItsDimensions) {
  const std::vector<double> weight = wavy(12);
  reference_.add(0, {"s0/param/fc.weight/0", weight, ElementType::kF32, {3, 4}});
  candidate_.add(0, {"s0/param/wide.weight/0", transposed(weight, 3), ElementType::kF32, {4, 3}});
  const MapGuess result = guess();
  EXPECT_EQ(result.certain, 2U) << result.text;
  EXPECT_THAT(result.text, HasSubstr("reference: \"a b\", candidate: \"b a\""));
}

TEST_F(GuessTest, ConstantsAreToldApartByTheirGradients) {
  for (const char* name : {"first", "second"}) {
    const double phase = name == std::string("first") ? 0.5 : 2.5;
    reference_.add(0, {std::string("s0/param/") + name + ".weight/0", {1, 1, 1}});
    reference_.add(0, {std::string("s0/main_grad/") + name + ".weight/0", wavy(3, phase)});
  }
  candidate_.add(0, {"s0/param/a.weight/0", {1, 1, 1}});
  candidate_.add(0, {"s0/main_grad/a.weight/0", wavy(3, 2.5)});
  candidate_.add(0, {"s0/param/b.weight/0", {1, 1, 1}});
  candidate_.add(0, {"s0/main_grad/b.weight/0", wavy(3, 0.5)});
  const MapGuess result = guess();
  EXPECT_EQ(result.open, 0U) << result.text;
  EXPECT_THAT(candidates_of("s0/param/first.weight/0"), ElementsAre("s0/param/b.weight/0"));
  EXPECT_THAT(candidates_of("s0/param/second.weight/0"), ElementsAre("s0/param/a.weight/0"));
}

// Two linears that take one tensor can have each other's names in the other program.
TEST_F(GuessTest, EqualNamesDecideNothingBetweenModulesOfOneShape) {
  for (TraceBuilder* side : {&reference_, &candidate_}) {
    const double seed = side == &reference_ ? 0.0 : 9.0;
    side->add(0, {"s0/m0/output/norm/0", wavy(6, 3.0 + seed), ElementType::kF32, {2, 3}});
    add_linear(*side, "gate", "s0/m0/output/norm/0", wavy(9, 1.0 + seed), 4.0 + seed);
    add_linear(*side, "up", "s0/m0/output/norm/0", wavy(9, 2.0 + seed), 5.0 + seed);
  }
  const MapGuess result = guess();
  EXPECT_FALSE(result.comparable);
  EXPECT_GE(result.open, 4U) << result.text;
  EXPECT_THAT(candidates_of("s0/param/gate.weight/0"), Not(ElementsAre("s0/param/gate.weight/0")));
  EXPECT_THAT(result.text, HasSubstr("OPEN"));
}

// A map said that one tower's weights were the other's: both programs had run a first and a second
// tower of one shape, and only the inputs showed that neither needs the other.
TEST_F(GuessTest, OrderDecidesNothingBetweenTowersThatNeedNotWaitForEachOther) {
  for (TraceBuilder* side : {&reference_, &candidate_}) {
    const double seed = side == &reference_ ? 0.0 : 9.0;
    side->add(0, {"s0/m0/output/words/0", wavy(6, 3.0 + seed), ElementType::kF32, {2, 3}});
    add_linear(*side, "left.a", "s0/m0/output/words/0", wavy(9, 1.0 + seed), 4.0 + seed);
    add_linear(*side, "left.b", "s0/m0/output/left.a/0", wavy(9, 2.0 + seed), 5.0 + seed);
    side->add(0, {"s0/m0/input/right.a/0", wavy(6, 7.0 + seed), ElementType::kF32, {2, 3}});
    side->add(0, {"s0/param/right.a.weight/0", wavy(9, 6.0 + seed), ElementType::kF32, {3, 3}});
    side->add(0, {"s0/m0/output/right.a/0", wavy(6, 8.0 + seed), ElementType::kF32, {2, 3}});
    add_linear(*side, "right.b", "s0/m0/output/right.a/0", wavy(9, 3.0 + seed), 9.0 + seed);
  }
  const MapGuess result = guess();
  EXPECT_FALSE(result.comparable);
  for (const char* path : {"left.a", "left.b", "right.a", "right.b"}) {
    const std::string id = std::string("s0/param/") + path + ".weight/0";
    EXPECT_THAT(candidates_of(id), ElementsAre(HasSubstr("open."))) << result.text;
  }
}

// Layers that take what the one before returned run in one order, whatever they are called.
TEST_F(GuessTest, LayersOfAChainArePairedInTheOrderOfTheirFlow) {
  for (TraceBuilder* side : {&reference_, &candidate_}) {
    const bool reversed = side == &candidate_;
    const double seed = reversed ? 9.0 : 0.0;
    const std::string first = reversed ? "layers.1" : "layers.0";
    const std::string second = reversed ? "layers.0" : "layers.1";
    side->add(0, {"s0/m0/output/words/0", wavy(6, 3.0 + seed), ElementType::kF32, {2, 3}});
    std::vector<double> taken = wavy(6, 3.0 + seed);
    for (const std::string& path : {first, second}) {
      const double phase = path == first ? seed : 2.0 + seed;
      side->add(0, {"s0/param/" + path + ".weight/0", wavy(3, phase)});
      side->add(0, {"s0/m0/input/" + path + "/0", taken, ElementType::kF32, {2, 3}});
      taken = wavy(6, 4.0 + phase);
      side->add(0, {"s0/m0/output/" + path + "/0", taken, ElementType::kF32, {2, 3}});
    }
  }
  const MapGuess result = guess();
  EXPECT_THAT(candidates_of("s0/m0/output/layers.0/0"), ElementsAre("s0/m0/output/layers.1/0"))
      << result.text;
  EXPECT_THAT(candidates_of("s0/m0/output/layers.1/0"), ElementsAre("s0/m0/output/layers.0/0"));
}

// Where the candidate cuts patches out of an image and multiplies them by a matrix, the map said of
// what the matrix takes that nothing in the reference can be it, so that nobody compared it.
TEST_F(GuessTest, SameNumbersInAnOrderThatNoMapExpressesAreAsked) {
  const std::vector<double> image = wavy(16);
  const std::vector<double> weight = wavy(4, 2.0);
  std::vector<double> patches;
  for (const std::size_t corner : {0, 2, 8, 10}) {
    for (const std::size_t offset : {0, 1, 4, 5}) {
      patches.push_back(image[corner + offset]);
    }
  }
  reference_.add(0, {"s0/param/cut.weight/0", weight, ElementType::kF32, {1, 1, 2, 2}});
  reference_.add(0, {"s0/m0/input/cut/0", image, ElementType::kF32, {1, 1, 4, 4}});
  reference_.add(0, {"s0/m0/output/cut/0", wavy(4, 3.0), ElementType::kF32, {1, 1, 2, 2}});
  candidate_.add(0, {"s0/param/matrix.weight/0", weight, ElementType::kF32, {1, 4}});
  candidate_.add(0, {"s0/m0/input/matrix/0", patches, ElementType::kF32, {1, 4, 4}});
  candidate_.add(0, {"s0/m0/output/matrix/0", wavy(4, 3.0), ElementType::kF32, {1, 4, 1}});
  const MapGuess result = guess();
  EXPECT_TRUE(result.comparable) << result.text;
  EXPECT_THAT(candidates_of("s0/m0/input/cut/0"), ElementsAre(HasSubstr("open.")));
  EXPECT_THAT(result.text, HasSubstr("it holds the same numbers in another order"));
}

TEST_F(GuessTest, RecordThatOneProgramAloneHasIsLeftOut) {
  for (TraceBuilder* side : {&reference_, &candidate_}) {
    side->add(0, {"s0/m0/output/norm/0", wavy(6, 3.0), ElementType::kF32, {2, 3}});
    add_linear(*side, side == &reference_ ? "up" : "wide", "s0/m0/output/norm/0", wavy(9), 4.0);
  }
  // Dropout that drops nothing.
  reference_.add(0, {"s0/m0/output/drop/0", wavy(6, 4.0), ElementType::kF32, {2, 3}});
  const MapGuess result = guess();
  EXPECT_TRUE(result.comparable) << result.text;
  EXPECT_EQ(result.open, 0U) << result.text;
  EXPECT_THAT(candidates_of("s0/m0/output/drop/0"), IsEmpty());
  EXPECT_THAT(candidates_of("s0/m0/output/up/0"), ElementsAre("s0/m0/output/wide/0"));
}

}  // namespace
}  // namespace ttrace::testing
