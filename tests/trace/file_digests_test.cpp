// Nothing that a verdict depends on may change on its way through a file: every flipped bit is
// refused, or hits what nobody reads.
#include "trace/file/file_digests.h"

#include "support/earlier_version.h"
#include "support/temporary_directory.h"
#include "trace/file/noise_table.h"
#include "trace/file/rank_file.h"
#include "trace/file/trace_writer.h"
#include "trace/file_helpers.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

// Alternate rows, so that its text is long.
Placement scattered(std::int64_t rows) {
  std::string text = std::to_string(2 * rows) + "/" + std::to_string(rows) + ":";
  for (std::int64_t row = 0; row < rows; ++row) {
    text += (row == 0 ? "" : ",") + std::to_string(row) + "+" + std::to_string(2 * row) + "+1";
  }
  return parse_placement(text);
}

// A rank's file with every table.
std::string write_rank_file(const TemporaryDirectory& folder) {
  const std::string file = folder / "rank.h5";
  Layout layout{.rank = 1, .world_size = 2, .axes = {}};
  TraceWriter writer(file, layout.add("tp", 2, 1), {.named = false, .began = 7, .run = "a1"});
  for (const char* path : {"a", "b"}) {
    Record record;
    record.id = {.step = 0, .microbatch = 0, .kind = Kind::kOutput, .path = path};
    record.type = ElementType::kF32;
    record.shape = {96};
    record.placement = scattered(96);
    record.order = path[0] == 'a' ? 1 : 2;
    writer.append(record, std::vector<std::byte>(96 * 4, std::byte{0x3f}));
  }
  TensorId input = parse_tensor_id("s0/m0/input/b/0");
  writer.edge({input, parse_tensor_id("s0/m0/output/a/0"), 3, 9});
  writer.sum({parse_tensor_id("s0/m0/output/b/0"), ElementType::kF32, 2, 1.5, {0.5, 1.0}});
  writer.code(CodeRole::kSource, "a", "model.py:3 (A)");
  writer.note("a remark");
  writer.commit();
  return file;
}

// All that the file says, but for the bytes of its tensors.
std::string said_by(const RankFile& file) {
  std::ostringstream out;
  out << std::hexfloat << to_string(file.layout()) << *file.began() << file.run();
  for (const Record& record : file.records()) {
    out << to_string(record.id) << name_of(record.type) << shape_text(record.shape)
        << to_string(record.placement) << ' ' << record.order << ' ' << record.time << ' '
        << record.inferred << record.undeclared << record.needs_no_gradient << record.digest << ' '
        << record.norm << ' ' << record.max_abs << ' ' << record.nonfinite;
  }
  for (const Edge& edge : file.edges()) {
    out << to_string(edge.consumer) << to_string(edge.producer) << edge.order << ' ' << edge.time;
  }
  for (const RoundedSum& sum : file.sums()) {
    out << to_string(sum.id) << name_of(sum.type) << sum.addends << ' ' << sum.squared.value_or(-1);
    for (const double column : sum.by_column) {
      out << ' ' << column;
    }
  }
  for (const std::string& note : file.notes()) {
    out << note;
  }
  out << file.code().source_of("a");
  return out.str();
}

std::string said_by(const NoisePass& pass) {
  std::ostringstream out;
  out << std::hexfloat << pass.seed << pass.run;
  for (const NoiseRow& row : pass.rows) {
    out << to_string(row.id) << row.sum_squared << ' ' << row.max_abs << ' ' << row.nonfinite << ' '
        << row.along_reference.value_or(-1) << ' ' << row.covered.value_or(false);
    for (const double slice : row.slices) {
      out << ' ' << slice;
    }
  }
  return out.str();
}

// Flips `trials` single bits at random places of the file, which is mostly room for metadata that
// does not come. `said` reads it. Returns how many were refused for their digest.
int flip_bits(const std::string& file, int trials, const std::function<std::string()>& said) {
  const std::string whole = read_file(file);
  const std::string truth = said();
  std::vector<std::size_t> places;
  for (std::size_t place = whole.find_first_not_of('\0'); place < whole.size();
       place = whole.find_first_not_of('\0', place + 1)) {
    places.insert(places.end(), {place, std::min(place + 7, whole.size() - 1)});
  }
  std::mt19937 generator(5);
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t place, char byte) {
    bytes.seekp(static_cast<std::streamoff>(place)).put(byte).flush();
  };
  int noticed = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const std::size_t place = places[generator() % places.size()];
    const unsigned bit = generator() % 8;
    put(place, static_cast<char>(static_cast<unsigned char>(whole[place]) ^ (1U << bit)));
    try {
      EXPECT_EQ(said(), truth) << "byte " << place << ", bit " << bit;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(), HasSubstr(file));
      noticed += error.message().find("digest differs") == std::string::npos ? 0 : 1;
    }
    put(place, whole[place]);
  }
  return noticed;
}

TEST(FileDigests, EveryFlippedBitOfARankFileIsRefusedOrSaysNothing) {
  const TemporaryDirectory folder;
  const std::string file = write_rank_file(folder);
  ASSERT_TRUE(RankFile(file).has_digests());
  EXPECT_GT(flip_bits(file, 3000, [&] { return said_by(RankFile(file)); }), 100);
}

NoisePass noise_of_three() {
  NoisePass pass{.seed = 1, .rows = {}, .run = "b2"};
  for (const char* id : {"s0/m0/output/a/0", "s0/m0/output/b/0", "s0/main_grad/c/0"}) {
    pass.rows.push_back({.id = parse_tensor_id(id),
                         .sum_squared = 1e-6,
                         .max_abs = 1e-3,
                         .nonfinite = 0,
                         .along_reference = -1e-7,
                         .covered = true,
                         .slices = {4e-7, 6e-7}});
  }
  return pass;
}

// A flipped bit of one squared sum made a bound of 1.6e148, and a wrong candidate got WITHIN BOUND.
TEST(FileDigests, EveryFlippedBitOfANoiseTableIsRefusedOrSaysNothing) {
  const TemporaryDirectory folder;
  write_noise(folder.path(), noise_of_three());
  const std::string file = noise_file(folder.path(), 1);
  ASSERT_TRUE(read_noise_file(file).has_digests);
  EXPECT_GT(flip_bits(file, 3000, [&] { return said_by(read_noise_file(file)); }), 100);
}

// The table and column that attack found: each is named.
TEST(FileDigests, ChangedCellNamesFileAndTable) {
  const TemporaryDirectory folder;
  const std::string file = write_rank_file(folder);
  const std::string whole = read_file(file);
  for (const auto& [text, table] : {std::pair("s0/m0/output/b/0f32", "/index"),
                                    std::pair("s0/m0/input/b/0", "/edges"),
                                    std::pair("model.py:3", "/code"),
                                    std::pair("192/96:0+0+1,1+2", "placements")}) {
    std::string changed = whole;
    const std::size_t place = whole.find(text);
    ASSERT_NE(place, std::string::npos) << text;
    const std::size_t last = place + std::string(text).size() - 1;
    changed[last] = static_cast<char>(changed[last] ^ 1);
    write_file(file, changed);
    EXPECT_THAT(message_of<FormatError>([&] { const RankFile read(file); }),
                AllOf(HasSubstr(file), HasSubstr(table)))
        << text;
  }
}

void change(const std::string& path, const std::function<herr_t(hid_t)>& action) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  EXPECT_GE(action(file), 0);
  H5Fclose(file);
}

TEST(FileDigests, TableThatIsGoneIsMissed) {
  for (const char* table : {"/edges", "/sums", "/code"}) {
    const TemporaryDirectory folder;
    const std::string file = write_rank_file(folder);
    change(file, [&](hid_t opened) { return H5Ldelete(opened, table, H5P_DEFAULT); });
    EXPECT_THAT(message_of<FormatError>([&] { const RankFile read(file); }),
                HasSubstr("'" + std::string(table) + "', which its writer wrote, is absent"));
  }
}

TEST(FileDigests, FilesOfEarlierVersionsHaveNoneAndAreRead) {
  const TemporaryDirectory folder;
  const std::string file = write_rank_file(folder);
  write_noise(folder.path(), noise_of_three());
  const std::string said = said_by(RankFile(file));
  const std::string table = noise_file(folder.path(), 1);
  testing::take_digests_from(file);
  testing::take_digests_from(table);
  EXPECT_FALSE(RankFile(file).has_digests());
  EXPECT_EQ(said_by(RankFile(file)), said);
  EXPECT_FALSE(read_noise_file(table).has_digests);
  EXPECT_EQ(read_noise_file(table).rows.size(), 3U);
}

// Without a digest, numbers of one row still have to go together.
TEST(FileDigests, SquaredSumBeyondTheLargestElementIsRefused) {
  const NoiseRow possible{parse_tensor_id("s0/m0/output/a/0"), 4e-6, 1e-3};
  check_size(possible, 4);
  EXPECT_THAT(message_of<FormatError>([&] { check_size(possible, 3); }),
              AllOf(HasSubstr("s0/m0/output/a/0"), HasSubstr("which 3 elements")));
}

TEST(FileDigests, TextsRoundTrip) {
  const FileDigests digests{{"/index", 1}, {"rank", ~std::uint64_t{0}}};
  EXPECT_EQ(to_text(digests), R"({"/index":"0000000000000001","rank":"ffffffffffffffff"})");
  EXPECT_EQ(parse_digests(to_text(digests)), digests);
  for (const char* wrong :
       {"", "[]", "{\"a\": 1}", "{\"a\": \"1\"}", "{\"a\": \"000000000000000g\"}"}) {
    EXPECT_THROW(static_cast<void>(parse_digests(wrong)), FormatError) << wrong;
  }
}

}  // namespace
}  // namespace ttrace
