// Noise passes of a reference of several ranks, whose traces become tables.
#include "trace/merge/noise_of_ranks.h"

#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using testing::part;
using ::testing::SizeIs;
using testing::TraceBuilder;

const std::string kCut = "s0/m0/output/cut/0";
const std::string kSummed = "s0/m0/output/summed/0";

Placement addend(int index) {
  return Placement{{DimPlacement{2, 2, {{0, 0, 2}}}}, index, 2, "tp", 1.0};
}

// A tensor of which each of two ranks holds a half, and one of which each holds an addend.
void add_records(TraceBuilder& builder, double moved) {
  for (int rank = 0; rank < 2; ++rank) {
    builder.add(rank, {kCut, {1.0 + moved, 2.0 - moved}, ElementType::kF32, {}, part(4, rank, 2)});
    builder.add(rank, {kSummed, {1.0 + moved, 3.0}, ElementType::kF32, {}, addend(rank)});
  }
}

class NoiseOfRanks : public ::testing::Test {
 protected:
  NoiseOfRanks() {
    TraceBuilder reference(folder_.path(), "reference", 2);
    add_records(reference, 0.0);
    reference.write();
  }

  void write_pass(int seed, double moved) {
    TraceBuilder noisy(noise_trace(folder_.path(), seed), "noise", 2);
    noisy.manifest.run = "token";
    add_records(noisy, moved);
    noisy.write();
  }

  testing::TemporaryDirectory folder_;
};

TEST_F(NoiseOfRanks, PartsAreJoinedAndAddendsAddedUp) {
  write_pass(1, 0.5);
  write_noise_of_ranks(folder_.path());
  EXPECT_FALSE(std::filesystem::exists(noise_trace(folder_.path(), 1)));
  const std::vector<NoisePass> passes = read_noise(folder_.path());
  ASSERT_THAT(passes, SizeIs(1));
  EXPECT_EQ(passes[0].run, "token");
  ASSERT_THAT(passes[0].rows, SizeIs(2));
  EXPECT_EQ(to_string(passes[0].rows[0].id), kCut);
  EXPECT_EQ(passes[0].rows[0].sum_squared, 4 * 0.25);
  EXPECT_EQ(passes[0].rows[0].max_abs, 0.5);
  EXPECT_EQ(to_string(passes[0].rows[1].id), kSummed);
  EXPECT_EQ(passes[0].rows[1].sum_squared, 1.0);  // both ranks moved the same way
  EXPECT_EQ(passes[0].rows[1].along_reference, 2.0);
  EXPECT_EQ(passes[0].rows[1].covered, true);
}

TEST_F(NoiseOfRanks, TheSelfCheckHasATableOfItsOwn) {
  write_pass(kSelfCheckSeed, 0.0);
  write_pass(2, 0.25);
  write_noise_of_ranks(folder_.path());
  ASSERT_TRUE(read_self_check(folder_.path()));
  EXPECT_EQ(read_self_check(folder_.path())->rows[0].sum_squared, 0.0);
  EXPECT_THAT(noise_files(folder_.path()), ElementsAre(noise_file(folder_.path(), 2)));
}

// A rank may still write.
TEST_F(NoiseOfRanks, ATraceThatLacksARankIsLeftAsItIs) {
  write_pass(1, 0.5);
  std::filesystem::remove(step_file(noise_trace(folder_.path(), 1), 0, 1));
  write_noise_of_ranks(folder_.path());
  EXPECT_TRUE(std::filesystem::exists(step_file(noise_trace(folder_.path(), 1), 0, 0)));
  EXPECT_THAT(read_noise(folder_.path()), SizeIs(0));
}

}  // namespace
}  // namespace ttrace
