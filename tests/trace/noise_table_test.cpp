#include "trace/file/noise_table.h"

#include "support/earlier_version.h"
#include "support/temporary_directory.h"
#include "trace/file_helpers.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

NoiseRow row(const std::string& path, double sum_squared, double max_abs, std::uint64_t nonfinite) {
  return {{.microbatch = 0, .path = path}, sum_squared, max_abs, nonfinite};
}

std::string complaint_in(const TemporaryDirectory& folder) {
  return message_of<FormatError>([&] { static_cast<void>(read_noise(folder.path())); });
}

TEST(NoiseTable, RoundTripsExactlyAndComesBackBySeed) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {12, {row("late", 3.0, 1.0, 0)}});
  write_noise(folder.path(),
              {2,
               {row("decoder.layers.0", 0.1, std::numeric_limits<double>::denorm_min(), 3),
                row("a", 0.0, 0.0, std::numeric_limits<std::uint64_t>::max())}});
  write_noise(folder.path(), {1, {}});
  const auto passes = read_noise(folder.path());
  ASSERT_EQ(passes.size(), 3U);
  EXPECT_EQ(passes[0].seed, 1);
  EXPECT_THAT(passes[0].rows, IsEmpty());
  EXPECT_EQ(passes[1].seed, 2);
  ASSERT_EQ(passes[1].rows.size(), 2U);
  EXPECT_EQ(to_string(passes[1].rows[0].id), "s0/m0/output/decoder.layers.0/0");
  EXPECT_EQ(passes[1].rows[0].sum_squared, 0.1);
  EXPECT_EQ(passes[1].rows[0].max_abs, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(passes[1].rows[0].nonfinite, 3U);
  EXPECT_EQ(to_string(passes[1].rows[1].id), "s0/m0/output/a/0");
  EXPECT_EQ(passes[1].rows[1].nonfinite, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(passes[2].seed, 12);
}

NoiseRow sliced_row(const std::string& path, double along, std::vector<double> slices) {
  NoiseRow result = row(path, 1.0, 1.0, 0);
  result.along_reference = along;
  result.slices = std::move(slices);
  return result;
}

TEST(NoiseTable, SlicesRoundTrip) {
  const TemporaryDirectory folder;
  write_noise(folder.path(),
              {1,
               {sliced_row("a", -0.1, {0.25, 0.75}),
                sliced_row("b", 0.0, {}),
                sliced_row("c", 2.0, {7.0})}});
  write_noise(folder.path(), {2, {sliced_row("a", 1.0, {}), sliced_row("b", 0.0, {})}});
  const auto passes = read_noise(folder.path());
  ASSERT_EQ(passes.size(), 2U);
  ASSERT_EQ(passes[0].rows.size(), 3U);
  EXPECT_EQ(passes[0].rows[0].along_reference, -0.1);
  EXPECT_THAT(passes[0].rows[0].slices, ElementsAre(0.25, 0.75));
  EXPECT_THAT(passes[0].rows[1].slices, IsEmpty());
  EXPECT_EQ(passes[0].rows[2].along_reference, 2.0);
  EXPECT_THAT(passes[0].rows[2].slices, ElementsAre(7.0));
  EXPECT_THAT(passes[1].rows[0].slices, IsEmpty());
}

// Files of before slices were stored have the first table alone.
TEST(NoiseTable, TableWithoutSlicesIsReadBesideOneThatHasThem) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {1, {sliced_row("a", 1.0, {1.0})}});
  write_noise(folder.path(), {2, {row("a", 1.0, 1.0, 0)}});
  const auto passes = read_noise(folder.path());
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_TRUE(passes[0].rows[0].along_reference.has_value());
  EXPECT_FALSE(passes[1].rows[0].along_reference.has_value());
  EXPECT_THAT(passes[1].rows[0].slices, IsEmpty());
}

TEST(NoiseTable, CoverageRoundTripsAndIsUnknownOfTablesThatDoNotTell) {
  const TemporaryDirectory folder;
  NoiseRow covered = row("a", 1.0, 1.0, 0);
  covered.covered = true;
  NoiseRow untouched = row("b", 0.0, 0.0, 0);
  untouched.covered = false;
  write_noise(folder.path(), {1, {covered, untouched}});
  write_noise(folder.path(), {2, {row("a", 1.0, 1.0, 0), row("b", 0.0, 0.0, 0)}});
  const auto passes = read_noise(folder.path());
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes[0].rows[0].covered, true);
  EXPECT_EQ(passes[0].rows[1].covered, false);
  EXPECT_EQ(passes[1].rows[0].covered, std::nullopt);
  EXPECT_EQ(passes[1].rows[1].covered, std::nullopt);
}

TEST(NoiseTable, SlicesThatAreNoSumsOfSquaresAreRefused) {
  const TemporaryDirectory folder;
  EXPECT_THAT(message_of<FormatError>([&] {
                write_noise(folder.path(), {1, {sliced_row("a", 1.0, {1.0, -1.0})}});
              }),
              HasSubstr("s0/m0/output/a/0"));
}

TEST(NoiseTable, ReferenceWithoutNoiseHasNoPasses) {
  const TemporaryDirectory folder;
  EXPECT_THAT(read_noise(folder.path()), IsEmpty());
}

TEST(NoiseTable, SecondRunOfAPassReplacesTheFirst) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0)}});
  write_noise(folder.path(), {1, {row("a", 2.0, 1.0, 0)}});
  ASSERT_EQ(read_noise(folder.path()).size(), 1U);
  EXPECT_EQ(read_noise(folder.path())[0].rows[0].sum_squared, 2.0);
  EXPECT_FALSE(std::filesystem::exists(noise_file(folder.path(), 1) + ".tmp"));
}

TEST(NoiseTable, WhatAKilledPassLeftIsNotRead) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0)}});
  write_file(noise_file(folder.path(), 2) + ".tmp", "half");
  EXPECT_EQ(read_noise(folder.path()).size(), 1U);
}

TEST(NoiseTable, TwoRowsOfOneIdAreRefused) {
  const TemporaryDirectory folder;
  EXPECT_THAT(message_of<FormatError>([&] {
                write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0), row("a", 1.0, 1.0, 0)}});
              }),
              HasSubstr("s0/m0/output/a/0 occurs twice"));
  write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0), row("b", 1.0, 1.0, 0)}});
  testing::take_digests_from(noise_file(folder.path(), 1));
  std::string bytes = read_file(noise_file(folder.path(), 1));
  const std::size_t position = bytes.find("output/b/0");
  ASSERT_NE(position, std::string::npos);
  write_file(noise_file(folder.path(), 1), bytes.replace(position, 10, "output/a/0"));
  EXPECT_THAT(complaint_in(folder),
              AllOf(HasSubstr(noise_file(folder.path(), 1)),
                    HasSubstr("row 1 of the noise table: s0/m0/output/a/0 occurs twice")));
}

TEST(NoiseTable, NoiseThatIsNotANumberIsRefused) {
  const TemporaryDirectory folder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of<FormatError>([&] {
                write_noise(folder.path(), {1, {row("a", nan, 1.0, 0)}});
              }),
              HasSubstr("s0/m0/output/a/0"));
}

TEST(NoiseTable, FileOfAnotherSeedIsRefused) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {1, {}});
  std::filesystem::rename(noise_file(folder.path(), 1), noise_file(folder.path(), 3));
  EXPECT_THAT(complaint_in(folder), HasSubstr("holds the noise of seed 1"));
}

TEST(NoiseTable, TruncatedFileIsRefused) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0)}});
  const std::string file = noise_file(folder.path(), 1);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_THAT(complaint_in(folder), AllOf(HasSubstr(file), HasSubstr("damaged or truncated")));
}

TEST(NoiseTable, SeedsAreNotNegative) {
  const TemporaryDirectory folder;
  EXPECT_THROW(write_noise(folder.path(), {-1, {}}), UsageError);
}

TEST(NoiseTable, TableOfTheSelfCheckIsNoNoisePass) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(read_self_check(folder.path()).has_value());
  write_noise(folder.path(), {kSelfCheckSeed, {row("a", 4.0, 2.0, 0)}});
  write_noise(folder.path(), {1, {row("a", 1.0, 1.0, 0)}});
  ASSERT_EQ(read_noise(folder.path()).size(), 1U);
  EXPECT_EQ(read_noise(folder.path())[0].seed, 1);
  EXPECT_EQ(read_self_check(folder.path())->rows.at(0).sum_squared, 4.0);
}

TEST(NoiseTable, NoisePassIsNotTakenForTheSelfCheck) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), {2, {}});
  std::filesystem::rename(noise_file(folder.path(), 2), noise_file(folder.path(), kSelfCheckSeed));
  EXPECT_THAT(message_of<FormatError>([&] { static_cast<void>(read_self_check(folder.path())); }),
              HasSubstr("holds the noise of seed 2"));
}

}  // namespace
}  // namespace ttrace
