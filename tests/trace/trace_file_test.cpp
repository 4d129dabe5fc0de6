#include "support/earlier_version.h"
#include "support/temporary_directory.h"
#include "trace/file/hdf5_driver.h"
#include "trace/file/rounded_sum.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/file_helpers.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
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

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(generator() & 0xffU);
  }
  return bytes;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return bytes;
}

Record record_of(const std::string& path, ElementType type, std::vector<std::int64_t> shape) {
  Record record;
  record.id.microbatch = 0;
  record.id.path = path;
  record.type = type;
  record.shape = std::move(shape);
  record.placement = whole(record.shape);
  return record;
}

Layout two_ranks(int rank) {
  Layout layout;
  layout.rank = rank;
  layout.world_size = 2;
  layout.add("tp", 2, rank).add("sp", 2, rank, "tp");
  return layout;
}

Bytes stored(const RankFile& file, const Record& record) {
  const auto bytes = file.bytes(record);
  return {bytes.begin(), bytes.end()};
}

std::string open_complaint(const std::string& path) {
  return message_of<FormatError>([&] { const RankFile file(path); });
}

// A small file with everything in it: blob, own dataset, scalar, empty tensor, notes, padding.
std::string write_small_file(const std::string& directory) {
  const std::string file = step_file(directory, 0, 1);
  TraceWriter writer(file, two_ranks(1));
  writer.append(record_of("scalar", ElementType::kF64, {}), random_bytes(8, 1));
  writer.append(record_of("empty", ElementType::kBF16, {0, 5}), {});
  writer.append(record_of("small", ElementType::kBF16, {3, 7}), random_bytes(42, 2));
  writer.append(record_of("large", ElementType::kF32, {128, 129}), random_bytes(128 * 129 * 4, 3));
  writer.note("the gradient of x never arrived");
  writer.commit();
  return file;
}

// ---- round trips -------------------------------------------------------------------------------

class EveryElementType : public ::testing::TestWithParam<ElementType> {};

TEST_P(EveryElementType, ComesBackBitForBitSmallAndLarge) {
  const TemporaryDirectory folder;
  const std::size_t size = element_size(GetParam());
  const bool logical = GetParam() == ElementType::kBool;
  const auto values = [&](std::size_t count, unsigned seed) {
    return logical ? Bytes(count, std::byte{1}) : random_bytes(count * size, seed);
  };
  const Bytes small = values(7 * 3, 4);
  const Bytes large = values(70000, 5);
  const std::string file = step_file(folder.path(), 3, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("small", GetParam(), {7, 3}), small);
  writer.append(record_of("large", GetParam(), {7, 100, 100}), large);
  writer.commit();

  const RankFile read(file);
  ASSERT_EQ(read.records().size(), 2U);
  EXPECT_EQ(read.records()[0].type, GetParam());
  EXPECT_THAT(read.records()[0].shape, ElementsAre(7, 3));
  EXPECT_EQ(stored(read, read.records()[0]), small);
  EXPECT_EQ(read.records()[1].type, GetParam());
  EXPECT_THAT(read.records()[1].shape, ElementsAre(7, 100, 100));
  EXPECT_EQ(stored(read, read.records()[1]), large);
}

// Random bytes of a floating type contain NaN and Inf.
TEST_P(EveryElementType, IsSummarizedAsElementByElement) {
  const TemporaryDirectory folder;
  constexpr std::int64_t kCount = 5000;  // whole blocks and a rest
  const Bytes bytes = random_bytes(kCount * element_size(GetParam()), 9);
  std::vector<double> values(kCount);
  to_double(GetParam(), bytes.data(), kCount, values.data());
  double squares = 0.0;
  double largest = 0.0;
  std::uint64_t nonfinite = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      squares += value * value;
      largest = std::max(largest, std::fabs(value));
    } else {
      ++nonfinite;
    }
  }
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("x", GetParam(), {kCount}), bytes);
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.records()[0].nonfinite, nonfinite);
  EXPECT_EQ(read.records()[0].max_abs, largest);
  if (std::isinf(squares)) {
    EXPECT_EQ(read.records()[0].norm, std::numeric_limits<double>::infinity());
  } else {
    EXPECT_NEAR(read.records()[0].norm / std::sqrt(squares), 1.0, 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(TraceFile,
                         EveryElementType,
                         ::testing::Values(ElementType::kF64,
                                           ElementType::kF32,
                                           ElementType::kF16,
                                           ElementType::kBF16,
                                           ElementType::kI64,
                                           ElementType::kI32,
                                           ElementType::kU8,
                                           ElementType::kBool),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(TraceFile, KeepsWhatARecordSaysAboutItself) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 2, 1);
  Record record = record_of("decoder.layers.0", ElementType::kF32, {2, 2});
  record.id = parse_tensor_id("s2/m5/grad_output/decoder.layers.0.mlp/1#2~");
  record.placement.dims[0] = {2, 4, {{0, 2, 2}}};
  record.placement.partial_index = 1;
  record.placement.partial_count = 2;
  record.placement.partial_over = "tp";
  record.placement.scale = 0.1;
  record.order = 17;
  record.inferred = true;
  record.needs_no_gradient = true;
  TraceWriter writer(file, two_ranks(1));
  writer.append(record, bytes_of<float>({1, 2, 3, 4}));
  writer.note("first");
  writer.note("second, with \"quotes\"");
  writer.code(CodeRole::kSource, "h.0.attn", "model.py:88 (Attention)");
  writer.code(CodeRole::kCall, "h.0.attn", "model.py:120");
  writer.commit();

  const RankFile read(file);
  EXPECT_EQ(read.path(), file);
  EXPECT_EQ(read.code().source_of("h.0.attn.weight"), "model.py:88 (Attention)");
  EXPECT_EQ(read.code().call_of("h.0.attn"), "model.py:120");
  EXPECT_EQ(read.layout(), two_ranks(1));
  EXPECT_THAT(read.notes(), ElementsAre("first", "second, with \"quotes\""));
  ASSERT_EQ(read.records().size(), 1U);
  EXPECT_EQ(read.records()[0].id, record.id);
  EXPECT_EQ(read.records()[0].placement, record.placement);
  EXPECT_EQ(read.records()[0].order, 17U);
  EXPECT_TRUE(read.records()[0].inferred);
  EXPECT_FALSE(read.records()[0].undeclared);
  EXPECT_TRUE(read.records()[0].needs_no_gradient);
  EXPECT_EQ(read.records()[0].bytes, 16U);
}

TEST(TraceFile, ScalarsAndEmptyTensorsAreTensorsToo) {
  const TemporaryDirectory folder;
  for (const bool named : {false, true}) {
    const std::string file = step_file(folder.path(), named ? 1 : 0, 0);
    TraceWriter writer(file, Layout{}, {.named = named});
    writer.append(record_of("scalar", ElementType::kF64, {}), bytes_of<double>({-2.5}));
    writer.append(record_of("empty", ElementType::kF32, {4, 0}), {});
    writer.commit();
    const RankFile read(file);
    EXPECT_THAT(read.records()[0].shape, IsEmpty());
    EXPECT_EQ(stored(read, read.records()[0]), bytes_of<double>({-2.5}));
    EXPECT_EQ(read.records()[0].max_abs, 2.5);
    EXPECT_THAT(read.records()[1].shape, ElementsAre(4, 0));
    EXPECT_TRUE(read.bytes(read.records()[1]).empty());
    EXPECT_EQ(read.records()[1].norm, 0.0);
  }
}

// Symptom: whenever a file was closed, HDF5 read the class of our driver, which it had just freed.
TEST(TraceFile, TheDriverOutlivesItsLastFile) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  WriteTarget target;
  use_write_target(access, &target, "made up");
  const hid_t driver = H5Pget_driver(access);
  EXPECT_GT(H5Iis_valid(driver), 0);
  H5Pclose(access);
  EXPECT_GT(H5Iis_valid(driver), 0);
}

TEST(TraceFile, RankWithoutAnyTensorHasAReadableFile) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter(file, Layout{}).commit();
  const RankFile read(file);
  EXPECT_THAT(read.records(), IsEmpty());
  EXPECT_THAT(read.notes(), IsEmpty());
  EXPECT_THAT(read.not_seen(), IsEmpty());
  EXPECT_THAT(read.sums(), IsEmpty());
  EXPECT_THAT(read.edges(), IsEmpty());
}

TEST(TraceFile, WhatWasNotSeenIsKeptApartFromNotesAndOnce) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.note("a note");
  const NotSeen first{NotSeenKind::kUpdates, "no optimizer is \"attached\""};
  const NotSeen second{NotSeenKind::kRandom, "dropout draws numbers"};
  for (const NotSeen& fact : {first, second, first}) {
    writer.not_seen(fact);
  }
  writer.commit();
  const RankFile read(file);
  EXPECT_THAT(read.notes(), ElementsAre("a note"));
  EXPECT_THAT(read.not_seen(), ElementsAre(first, second));
}

TEST(TraceFile, NotesMayBeLong) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const std::string remark(300 * 1024, 'n');  // past the 64 KiB of an object header
  TraceWriter writer(file, Layout{});
  writer.note(remark);
  writer.commit();
  EXPECT_THAT(RankFile(file).notes(), ElementsAre(remark));
}

TEST(TraceFile, EdgesAreReadBackInOrder) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const Edge first{parse_tensor_id("s0/m0/input/decoder.layers.0/0"),
                   parse_tensor_id("s0/m0/output/embedding/0"),
                   3};
  const Edge second{parse_tensor_id("s0/m0/input/output_layer/0"),
                    parse_tensor_id("s0/m0/received/decoder.layers.0/0"),
                    17};
  TraceWriter writer(file, two_ranks(0));
  writer.edge(first);
  writer.edge(second);
  writer.commit();
  EXPECT_THAT(RankFile(file).edges(), ElementsAre(first, second));
}

TEST(TraceFile, SumsOverRanksAreReadBackInOrder) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const Record output = record_of("decoder.layers.0.mlp.linear_fc2", ElementType::kBF16, {4});
  const RoundedSum first{output.id, ElementType::kBF16, 2, 0.25};
  const RoundedSum second{output.id, ElementType::kF32, 4, 5e-30, {1e-30, 4e-30}};
  const RoundedSum unseen{output.id, ElementType::kBF16, 4, std::nullopt};
  TraceWriter writer(file, two_ranks(0));
  writer.sum(first);
  writer.sum(second);
  writer.sum(unseen);
  writer.commit();
  EXPECT_THAT(RankFile(file).sums(), ElementsAre(first, second, unseen));
}

// Symptom: a step that Megatron skips because FP16 overflowed could not be compared: "the file is
// damaged: a sum has 2 addends and the squared norm -nan, which is impossible".
TEST(TraceFile, SumsMayHaveOverflowed) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const Record output = record_of("decoder.layers.0.mlp.linear_fc2", ElementType::kF16, {4});
  TraceWriter writer(file, two_ranks(0));
  writer.sum({output.id, ElementType::kF16, 2, std::numeric_limits<double>::quiet_NaN()});
  writer.sum({output.id, ElementType::kF16, 2, std::numeric_limits<double>::infinity()});
  writer.commit();
  const auto sums = RankFile(file).sums();
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_TRUE(std::isnan(sums[0].squared.value()));
  EXPECT_TRUE(std::isinf(sums[1].squared.value()));
}

// ---- what is computed --------------------------------------------------------------------------

TEST(TraceFile, NormAndMaximumAreOverFiniteValues) {
  const TemporaryDirectory folder;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(3000, 1.0F);  // several blocks and a rest
  values[5] = -4.0F;
  values[1500] = inf;
  values[2100] = inf;
  values[2101] = nan;
  values[2999] = -inf;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("x", ElementType::kF32, {3000}), bytes_of(values));
  writer.commit();
  const RankFile read(file);
  const Record& record = read.records()[0];
  EXPECT_EQ(record.nonfinite, 4U);
  EXPECT_EQ(record.max_abs, 4.0);
  EXPECT_DOUBLE_EQ(record.norm, std::sqrt(2995.0 + 16.0));
}

TEST(TraceFile, NormOfLargeDoublesCountsNoneOfThemNonfinite) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("x", ElementType::kF64, {2}), bytes_of<double>({1e200, -3e200}));
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.records()[0].nonfinite, 0U);
  EXPECT_EQ(read.records()[0].max_abs, 3e200);
}

TEST(TraceFile, DigestTellsTensorsApartByOneBit) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  Bytes bytes = random_bytes(1000, 6);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("a", ElementType::kU8, {1000}), bytes);
  writer.append(record_of("same", ElementType::kU8, {1000}), bytes);
  bytes[999] ^= std::byte{1};
  writer.append(record_of("other", ElementType::kU8, {1000}), bytes);
  writer.append(record_of("nothing", ElementType::kU8, {0}), {});
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.records()[0].digest, read.records()[1].digest);
  EXPECT_NE(read.records()[0].digest, read.records()[2].digest);
  EXPECT_EQ(read.records()[3].digest, 0x2d06800538d394c2U);  // XXH3-64 of no bytes
}

// ---- where the bytes lie -----------------------------------------------------------------------

TEST(TraceFile, ManySmallTensorsFillConsecutiveBlobs) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  std::vector<Bytes> tensors;
  for (unsigned i = 0; i < 400; ++i) {  // about 13 MB
    tensors.push_back(random_bytes(i == 0 ? 1 : i * 163 % 65535, i));
    const auto count = static_cast<std::int64_t>(tensors.back().size());
    writer.append(record_of("t" + std::to_string(i), ElementType::kU8, {count}), tensors.back());
  }
  writer.commit();

  const RankFile read(file);
  ASSERT_EQ(read.records().size(), tensors.size());
  std::map<std::string, int> blobs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Record& record = read.records()[i];
    ++blobs[record.dataset];
    EXPECT_LE(record.offset + record.bytes, 4U * 1024 * 1024);
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(read.bytes(record).data()) % 64, 0U) << i;
    EXPECT_EQ(stored(read, record), tensors[i]) << i;
  }
  EXPECT_GE(blobs.size(), 3U);
  EXPECT_EQ(blobs.begin()->first, "/blob/000000");
  EXPECT_EQ(std::next(blobs.begin())->first, "/blob/000001");
}

TEST(TraceFile, PlacementOfThousandsOfRowsIsKeptOnceAndNotInEveryRowOfTheIndex) {
  constexpr std::int64_t kRows = 4096;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = kRows; i-- > 0;) {
    rows.push_back(3 * i);
  }
  Record routed = record_of("expert", ElementType::kF32, {kRows});
  routed.placement.dims = {index_map(rows, 3 * kRows)};
  routed.placement.dims[0].sparse = true;
  const auto size_with = [&](int records) {
    const TemporaryDirectory folder;
    const std::string file = step_file(folder.path(), 0, 0);
    TraceWriter writer(file, two_ranks(0));
    for (int i = 0; i < records; ++i) {
      routed.id.call = i;
      writer.append(routed, random_bytes(kRows * 4, 1));
      writer.append(record_of("plain" + std::to_string(i), ElementType::kF32, {1}),
                    random_bytes(4, 2));
      if (i == 1) {
        writer.flush();
      }
    }
    writer.commit();
    const RankFile opened(file);
    EXPECT_EQ(opened.records().size(), 2 * static_cast<std::size_t>(records));
    for (const Record& record : opened.records()) {
      if (record.id.path == "expert") {
        EXPECT_EQ(record.placement, routed.placement);
        EXPECT_EQ(stored(opened, record), random_bytes(kRows * 4, 1));
      }
    }
    return std::filesystem::file_size(file);
  };
  // Tensors of 16 KiB, the text of 60 KB once, and rows of less than 1 KiB.
  EXPECT_LT(size_with(40) - size_with(20), 20 * (kRows * 4 + 4096));
}

TEST(TraceFile, LongPlacementWithoutAPlaceIsDamage) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  Record routed = record_of("expert", ElementType::kF32, {200});
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 200; i-- > 0;) {
    rows.push_back(i);
  }
  routed.placement.dims = {index_map(rows, 200)};
  TraceWriter writer(file, two_ranks(0));
  writer.append(routed, random_bytes(800, 1));
  writer.commit();
  testing::take_digests_from(file);
  const std::string bytes = read_file(file);
  const std::size_t at = bytes.find("@/blob/000000+");
  ASSERT_NE(at, std::string::npos);
  for (const std::string wrong : {"@/blob/000000+9", "@/blob/000001+0", "@/blob/000000*0"}) {
    std::string damaged = bytes;
    damaged.replace(at, wrong.size(), wrong);
    write_file(file, damaged);
    EXPECT_THAT(open_complaint(file), HasSubstr("is damaged")) << wrong;
  }
}

TEST(TraceFile, TensorsFrom64KibHaveAnAlignedDatasetOfTheirOwn) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("below", ElementType::kU8, {65535}), random_bytes(65535, 1));
  writer.append(record_of("at", ElementType::kU8, {65536}), random_bytes(65536, 2));
  writer.append(record_of("above", ElementType::kF32, {100, 200}), random_bytes(80000, 3));
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.records()[0].dataset, "/blob/000000");
  EXPECT_EQ(read.records()[1].dataset, "s0|m0|output|at|0");
  EXPECT_EQ(read.records()[2].dataset, "s0|m0|output|above|0");
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(read.bytes(read.records()[i]).data()) % 4096, 0U);
    EXPECT_EQ(read.records()[i].offset, 0U);
  }
}

TEST(TraceFile, NamedOptionNamesEveryTensor) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{}, {.named = true});
  writer.append(record_of("tiny", ElementType::kBF16, {3}), random_bytes(6, 1));
  writer.append(record_of("odd", ElementType::kU8, {3}), random_bytes(3, 2));
  writer.append(record_of("double", ElementType::kF64, {3}), random_bytes(24, 3));
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.records()[0].dataset, "s0|m0|output|tiny|0");
  EXPECT_EQ(stored(read, read.records()[0]), random_bytes(6, 1));
  EXPECT_EQ(stored(read, read.records()[2]), random_bytes(24, 3));
}

TEST(TraceFile, KeepsTimes) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{}, {.began = 1'790'000'000'123'456'789U});
  Record record = record_of("a", ElementType::kU8, {1});
  record.order = 1;
  record.time = 17;
  writer.append(record, random_bytes(1, 1));
  record.id.path = "b";
  record.order = 3;
  record.time = 4'000'000'000'000U;  // longer than an hour
  writer.append(record, random_bytes(1, 2));
  const Edge edge{parse_tensor_id("s0/m0/input/b/0"), parse_tensor_id("s0/m0/output/a/0"), 2, 21};
  writer.edge(edge);
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(read.began(), 1'790'000'000'123'456'789U);
  ASSERT_EQ(read.records().size(), 2U);
  EXPECT_EQ(read.records()[0].time, 17U);
  EXPECT_EQ(read.records()[1].time, 4'000'000'000'000U);
  EXPECT_THAT(read.edges(), ElementsAre(edge));
}

TEST(TraceFile, KeepsTimesOfAnInterruptedStep) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  {
    TraceWriter writer(file, Layout{}, {.began = 5});
    Record record = record_of("a", ElementType::kU8, {1});
    record.time = 17;
    writer.append(record, random_bytes(1, 1));
    writer.flush();
  }
  const RankFile read = RankFile::unfinished(file + ".tmp");
  EXPECT_EQ(read.began(), 5U);
  EXPECT_EQ(read.records().at(0).time, 17U);
}

TEST(TraceFile, TimesLeaveDigestsAndOtherColumnsAlone) {
  const TemporaryDirectory folder;
  const auto written = [&](int rank, std::optional<std::uint64_t> began, std::uint64_t time) {
    const std::string file = step_file(folder.path(), 0, rank);
    TraceWriter writer(file, Layout{}, {.began = began});
    Record record = record_of("a", ElementType::kF32, {4});
    record.order = 1;
    record.time = time;
    writer.append(record, random_bytes(16, 1));
    writer.commit();
    return RankFile(file);
  };
  const RankFile early = written(0, 1, 5);
  const RankFile late = written(1, 2, 6);
  const RankFile without = written(2, std::nullopt, 7);
  EXPECT_EQ(early.records()[0].digest, late.records()[0].digest);
  EXPECT_EQ(early.records()[0].digest, without.records()[0].digest);
  EXPECT_EQ(early.records()[0].order, late.records()[0].order);
  EXPECT_EQ(without.began(), std::nullopt);
  EXPECT_EQ(without.records()[0].time, 0U);
}

TEST(TraceFile, RefusesAnImpossibleTime) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{}, {.began = 1});
  Record record = record_of("a", ElementType::kU8, {1});
  record.time = std::numeric_limits<std::uint64_t>::max();
  writer.append(record, random_bytes(1, 1));
  writer.commit();
  EXPECT_THAT(message_of<FormatError>([&] { RankFile{file}; }),
              AllOf(HasSubstr(file), HasSubstr("row 0"), HasSubstr("is impossible")));
}

TEST(TraceFile, SameRecordsMakeTheSameBytes) {
  const TemporaryDirectory folder;
  EXPECT_EQ(read_file(write_small_file(folder / "one")),
            read_file(write_small_file(folder / "two")));
}

// HDF5 itself, as another tool would use it.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::string& path)
      : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {}
  ~Hdf5Reader() { H5Fclose(file_); }
  Hdf5Reader(const Hdf5Reader&) = delete;  // owns the file
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  [[nodiscard]] bool opened() const { return file_ >= 0; }

  // Reads as float, converting as HDF5 understands the stored type.
  [[nodiscard]] std::vector<float> floats(const std::string& name) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset);
    std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Sclose(space);
    H5Dclose(dataset);
    return values;
  }

  // Column `id` of a table.
  [[nodiscard]] std::vector<std::string> ids(const std::string& table) const {
    constexpr std::size_t kWidth = 128;
    const hid_t dataset = H5Dopen2(file_, table.c_str(), H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset);
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, kWidth);
    H5Tset_cset(text, H5T_CSET_UTF8);
    const hid_t row = H5Tcreate(H5T_COMPOUND, kWidth);
    H5Tinsert(row, "id", 0, text);
    const auto rows = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
    std::vector<char> bytes(rows * kWidth);
    EXPECT_GE(H5Dread(dataset, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), 0);
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < rows; ++i) {
      ids.emplace_back(bytes.data() + i * kWidth);
    }
    H5Tclose(row);
    H5Tclose(text);
    H5Sclose(space);
    H5Dclose(dataset);
    return ids;
  }

 private:
  hid_t file_;
};

TEST(TraceFile, OtherToolsSeeHalfPrecisionValuesAsFloats) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const std::vector<double> values = {1.5, -0.0078125, 65504.0, 0.0, -3.0};
  TraceWriter writer(file, Layout{}, {.named = true});
  for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
    Bytes bytes(values.size() * 2);
    from_double(type, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
    writer.append(record_of(std::string(name_of(type)), type, {5}), bytes);
  }
  writer.commit();
  const Hdf5Reader tool(file);
  ASSERT_TRUE(tool.opened());
  EXPECT_THAT(tool.floats("s0|m0|output|f16|0"), ElementsAre(1.5, -0.0078125, 65504.0, 0.0, -3.0));
  EXPECT_THAT(tool.floats("s0|m0|output|bf16|0"), ElementsAre(1.5, -0.0078125, 65536.0, 0.0, -3.0));
}

// ---- writer: names, crashes, full disks --------------------------------------------------------

TEST(TraceWriter, FinalNameAppearsOnlyAtCommit) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 12, 3);
  EXPECT_EQ(file, folder / "step000012/rank00003.h5");
  EXPECT_EQ(failed_file(folder.path(), 12, 3), folder / "step000012/rank00003.failed");
  EXPECT_EQ(start_file(folder.path(), 3), folder / "start/rank00003.h5");
  TraceWriter writer(file, Layout{});
  writer.flush();
  EXPECT_TRUE(std::filesystem::exists(file + ".tmp"));
  EXPECT_FALSE(std::filesystem::exists(file));
  writer.commit();
  EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(TraceWriter, WithoutCommitOnlyTheTemporaryFileStays) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  { const TraceWriter writer(file, Layout{}); }
  EXPECT_TRUE(std::filesystem::exists(file + ".tmp"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(TraceWriter, ReplacesWhatAKilledRunLeft) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 1);
  write_file(file + ".tmp", std::string(1 << 20, 'x'));
  write_file(failed_file(folder.path(), 0, 1), "an older failure");
  EXPECT_EQ(write_small_file(folder.path()), file);
  EXPECT_EQ(RankFile(file).records().size(), 4U);
  EXPECT_FALSE(std::filesystem::exists(failed_file(folder.path(), 0, 1)));
}

TEST(TraceWriter, RefusesAnExistingFinalFile) {
  const TemporaryDirectory folder;
  const std::string file = write_small_file(folder.path());
  const std::string before = read_file(file);
  EXPECT_THAT(
      message_of<FormatError>([&] { const TraceWriter writer(file, Layout{}); }),
      HasSubstr(file + ": the file exists already; choose another TTRACE_DIR, or remove it"));
  EXPECT_EQ(read_file(file), before);
  EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
}

TEST(TraceWriter, RefusesASecondWriterOfTheSameFile) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  EXPECT_THAT(message_of<FormatError>([&] { const TraceWriter second(file, Layout{}); }),
              HasSubstr("give every process its own rank"));
  writer.commit();
  EXPECT_THAT(RankFile(file).records(), IsEmpty());
}

TEST(TraceWriter, RefusesAnIdTwiceAndThenToCommit) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("x", ElementType::kU8, {1}), Bytes(1));
  EXPECT_THAT(message_of<InternalError>(
                  [&] { writer.append(record_of("x", ElementType::kU8, {1}), Bytes(1)); }),
              HasSubstr("s0/m0/output/x/0 is recorded twice"));
  EXPECT_THAT(message_of<FormatError>([&] { writer.commit(); }),
              HasSubstr("s0/m0/output/x/0 is recorded twice"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(TraceWriter, RefusesBytesAndPlacementsThatDoNotFitTheShape) {
  const TemporaryDirectory folder;
  TraceWriter bytes_writer(step_file(folder.path(), 0, 0), Layout{});
  EXPECT_THAT(message_of<InternalError>([&] {
                bytes_writer.append(record_of("x", ElementType::kF32, {2, 3}), Bytes(23));
              }),
              HasSubstr("it got 23 bytes, but f32 of shape 2x3 has 24"));
  TraceWriter placement_writer(step_file(folder.path(), 0, 1), Layout{});
  Record record = record_of("x", ElementType::kU8, {2});
  record.placement = whole(std::vector<std::int64_t>{3});
  EXPECT_THAT(message_of<InternalError>([&] { placement_writer.append(record, Bytes(2)); }),
              HasSubstr("its placement has the local shape 3, but the tensor has 2"));
}

TEST(TraceWriter, IsOfNoUseAfterCommit) {
  const TemporaryDirectory folder;
  TraceWriter writer(step_file(folder.path(), 0, 0), Layout{});
  writer.commit();
  EXPECT_THROW(writer.commit(), InternalError);
  EXPECT_THROW(writer.note("late"), InternalError);
}

TEST(TraceWriter, FolderThatCannotBeMadeNamesPathCauseAndRemedy) {
  const TemporaryDirectory folder;
  write_file(folder / "file", "in the way");
  EXPECT_THAT(message_of<FormatError>(
                  [&] { const TraceWriter writer(step_file(folder / "file", 0, 0), Layout{}); }),
              AllOf(HasSubstr(folder / "file/step000000"),
                    HasSubstr("Not a directory"),
                    HasSubstr("TTRACE_DIR")));
}

TEST(TraceWriter, ReadOnlyFolderNamesPathCauseAndRemedy) {
  const TemporaryDirectory folder;
  std::filesystem::permissions(folder.path(),
                               std::filesystem::perms::owner_all |
                                   std::filesystem::perms::others_read |
                                   std::filesystem::perms::others_exec);
  // Root writes to read-only folders, so it becomes somebody else.
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  } else {
    std::filesystem::permissions(
        folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  }
  const std::string message = message_of<FormatError>(
      [&] { const TraceWriter writer(step_file(folder.path(), 0, 0), Layout{}); });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  } else {
    std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  }
  EXPECT_THAT(
      message,
      AllOf(HasSubstr(folder.path()), HasSubstr("Permission denied"), HasSubstr("TTRACE_DIR")));
}

// Runs `action` in a child process and returns what waitpid says of it. HDF5 cleans up in the child
// as it would at the end of a program.
template <class Action>
int status_of_child(Action action) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int result = action();
    H5close();
    std::_Exit(result);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(TraceWriter, KilledAfterAFlushLeavesThePartReadable) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  const auto write_and_die = [&]() -> int {
    TraceWriter writer(file, Layout{});
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      for (int i = 0; i < 50; ++i) {
        Record record = record_of("t" + std::to_string(i), ElementType::kU8, {i * 2000});
        record.id.microbatch = microbatch;
        writer.append(record, Bytes(static_cast<std::size_t>(i) * 2000, std::byte{7}));
      }
      writer.flush();
    }
    // This record is not flushed, so it must neither appear nor do harm.
    for (int i = 0; i < 2000; ++i) {
      writer.append(record_of("late" + std::to_string(i), ElementType::kU8, {65536}), Bytes(65536));
    }
    ::raise(SIGKILL);
    return 0;
  };
  const int status = status_of_child(write_and_die);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(WTERMSIG(status), SIGKILL);

  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_THAT(open_complaint(file + ".tmp"), HasSubstr("its writer did not finish it"));
  const Hdf5Reader tool(file + ".tmp");
  ASSERT_TRUE(tool.opened());
  const auto ids = tool.ids("/partial_index");
  ASSERT_EQ(ids.size(), 150U);
  EXPECT_EQ(ids.front(), "s0/m0/output/t0/0");
  EXPECT_EQ(ids.back(), "s0/m2/output/t49/0");
  EXPECT_EQ(tool.floats("s0|m2|output|t49|0"), std::vector<float>(98000, 7.0F));
  EXPECT_EQ(tool.floats("/blob/000002").at(0), 7.0F);
}

TEST(TraceWriter, FlushesDoNotChangeWhatIsRead) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  for (unsigned i = 0; i < 20; ++i) {
    writer.append(record_of("t" + std::to_string(i), ElementType::kU8, {100}),
                  random_bytes(100, i));
    writer.flush();
    writer.flush();  // nothing new
  }
  writer.commit();
  const RankFile read(file);
  ASSERT_EQ(read.records().size(), 20U);
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(stored(read, read.records()[i]), random_bytes(100, i));
  }
  EXPECT_LT(std::filesystem::file_size(file), 4U << 20) << "a flush costs at most 64 KiB";
}

// A limit on the size of files makes write() fail the way a full disk does, without a mount.
enum ChildResult { kCommitted = 10, kRefused = 11, kWrongMessage = 12 };

int write_within(const std::string& directory, rlim_t limit) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit sizes = {limit, limit};
  ::setrlimit(RLIMIT_FSIZE, &sizes);
  try {
    write_small_file(directory);
    return kCommitted;
  } catch (const FormatError& error) {
    return error.message().find("cannot be written: File too large") != std::string::npos
               ? kRefused
               : kWrongMessage;
  }
}

TEST(TraceWriter, FullDiskAtAnyByteLeavesAWholeFileOrNone) {
  const TemporaryDirectory folder;
  const auto whole_size = std::filesystem::file_size(write_small_file(folder / "whole"));
  int refused = 0;
  for (std::uintmax_t limit = 0; limit < whole_size + 16384; limit += 8191) {
    const std::string directory = folder / std::to_string(limit);
    const int status = status_of_child([&] { return write_within(directory, limit); });
    ASSERT_TRUE(WIFEXITED(status)) << "limit " << limit << ": killed by " << WTERMSIG(status);
    const std::string file = step_file(directory, 0, 1);
    if (WEXITSTATUS(status) == kCommitted) {
      EXPECT_EQ(RankFile(file).records().size(), 4U) << "limit " << limit;
    } else {
      EXPECT_EQ(WEXITSTATUS(status), kRefused) << "limit " << limit;
      EXPECT_FALSE(std::filesystem::exists(file)) << "limit " << limit;
      ++refused;
    }
  }
  EXPECT_GT(refused, 5);
}

TEST(TraceWriter, AfterAFullDiskEveryLaterCallIsRefused) {
  const TemporaryDirectory folder;
  const auto child = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit sizes = {1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &sizes);
    TraceWriter writer(step_file(folder.path(), 0, 0), Layout{});
    try {
      writer.append(record_of("big", ElementType::kU8, {1 << 21}), Bytes(1 << 21));
      return 1;
    } catch (const FormatError&) {
    }
    try {
      writer.append(record_of("fits", ElementType::kU8, {1}), Bytes(1));
      return 2;
    } catch (const FormatError&) {
    }
    try {
      writer.commit();
      return 3;
    } catch (const FormatError& error) {
      return error.message().find("File too large") == std::string::npos ? 4 : 0;
    }
  };
  const int status = status_of_child(child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(std::filesystem::exists(step_file(folder.path(), 0, 0)));
}

TEST(TraceWriter, ForkedChildThatExitsDoesNotTouchTheFile) {
  const TemporaryDirectory folder;
  const std::string file = step_file(folder.path(), 0, 0);
  TraceWriter writer(file, Layout{});
  writer.append(record_of("a", ElementType::kU8, {100}), random_bytes(100, 1));
  writer.append(record_of("b", ElementType::kU8, {65536}), random_bytes(65536, 2));
  const std::string before = read_file(file + ".tmp");
  EXPECT_EQ(status_of_child([] { return 0; }), 0);  // HDF5 closes and flushes its copy there
  EXPECT_EQ(read_file(file + ".tmp"), before);
  writer.append(record_of("c", ElementType::kU8, {65536}), random_bytes(65536, 3));
  writer.commit();
  const RankFile read(file);
  EXPECT_EQ(stored(read, read.records()[0]), random_bytes(100, 1));
  EXPECT_EQ(stored(read, read.records()[1]), random_bytes(65536, 2));
  EXPECT_EQ(stored(read, read.records()[2]), random_bytes(65536, 3));
}

// ---- reader: damaged and foreign files ---------------------------------------------------------

TEST(RankFile, AbsentFileNamesPathAndCause) {
  const TemporaryDirectory folder;
  EXPECT_THAT(open_complaint(folder / "no.h5"),
              AllOf(HasSubstr(folder / "no.h5"), HasSubstr("No such file or directory")));
  EXPECT_THAT(open_complaint(folder.path()), HasSubstr("this is not a regular file"));
}

TEST(RankFile, ForeignFilesAreNamedAsSuch) {
  const TemporaryDirectory folder;
  write_file(folder / "text.h5", "this is a text, and a long one");
  EXPECT_THAT(open_complaint(folder / "text.h5"), HasSubstr("this is not an HDF5 file"));
  write_file(folder / "empty.h5", "");
  EXPECT_THAT(open_complaint(folder / "empty.h5"), HasSubstr("this is not an HDF5 file (0 bytes)"));
  const std::string other = folder / "other.h5";
  H5Fclose(H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  EXPECT_THAT(open_complaint(other), HasSubstr("TTrace did not write this HDF5 file"));
}

TEST(RankFile, NewerFormatSaysWhatThisProgramReads) {
  const TemporaryDirectory folder;
  const std::string file = write_small_file(folder.path());
  const hid_t opened = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(opened, "ttrace_format", H5P_DEFAULT);
  const std::int32_t version = 2;
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT32, &version), 0);
  H5Aclose(attribute);
  H5Fclose(opened);
  EXPECT_THAT(open_complaint(file),
              HasSubstr("a newer TTrace wrote this file (format 2, but this program reads 1)"));
}

TEST(RankFile, TruncatedFilesAreRefusedAtEveryLength) {
  const TemporaryDirectory folder;
  const std::string bytes = read_file(write_small_file(folder.path()));
  const std::string file = folder / "cut.h5";
  for (const std::size_t length : {std::size_t{0},
                                   std::size_t{1},
                                   std::size_t{7},
                                   std::size_t{8},
                                   std::size_t{47},
                                   std::size_t{48},
                                   std::size_t{100},
                                   std::size_t{2048},
                                   std::size_t{65536},
                                   bytes.size() / 3,
                                   bytes.size() / 2,
                                   bytes.size() - 4096,
                                   bytes.size() - 1}) {
    write_file(file, bytes.substr(0, length));
    EXPECT_THAT(open_complaint(file), HasSubstr(file)) << "length " << length;
  }
}

// Opens and reads everything; a FormatError is as good as success. Returns whether it opened.
bool read_everything(const std::string& file) {
  try {
    const RankFile read(file);
    unsigned sum = 0;
    for (const Record& record : read.records()) {
      for (const std::byte byte : read.bytes(record)) {
        sum += std::to_integer<unsigned>(byte);
      }
    }
    return sum != 0;
  } catch (const FormatError& error) {
    EXPECT_THAT(error.message(), HasSubstr(file));
    return false;
  }
}

TEST(RankFile, FlippedBytesAnywhereNeverCrashTheReader) {
  const TemporaryDirectory folder;
  const std::string bytes = read_file(write_small_file(folder.path()));
  const std::string file = folder / "flipped.h5";
  std::mt19937 generator(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::string flipped = bytes;
    for (unsigned i = 0; i <= generator() % 16; ++i) {
      flipped[generator() % flipped.size()] ^= static_cast<char>(1 + generator() % 255);
    }
    write_file(file, flipped);
    read_everything(file);
  }
}

TEST(RankFile, FlippedBytesInMetadataAndIndexNeverCrashTheReader) {
  const TemporaryDirectory folder;
  const std::string bytes = read_file(write_small_file(folder.path()));
  // HDF5 checks its own metadata; the index rows are data to it, so they are ours to check.
  std::vector<std::size_t> targets;
  for (std::size_t i = 0; i < 4096; ++i) {
    targets.push_back(i);
  }
  const std::size_t index = bytes.rfind("s0/m0/output/scalar/0");
  ASSERT_NE(index, std::string::npos);
  for (std::size_t i = index; i < index + 800; ++i) {
    targets.push_back(i);
    targets.push_back(i);
    targets.push_back(i);
  }
  const std::string file = folder / "flipped.h5";
  std::mt19937 generator(8);
  int refused = 0;
  for (int trial = 0; trial < 600; ++trial) {
    std::string flipped = bytes;
    flipped[targets[generator() % targets.size()]] ^= static_cast<char>(1 + generator() % 255);
    write_file(file, flipped);
    refused += read_everything(file) ? 0 : 1;
  }
  EXPECT_GT(refused, 100) << "the flips did not hit anything that matters";
}

TEST(RankFile, UnreadableRowIsNamed) {
  const TemporaryDirectory folder;
  const std::string file = write_small_file(folder.path());
  testing::take_digests_from(file);
  const std::string bytes = read_file(file);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    changed.replace(changed.rfind(from), from.size(), to);
    write_file(file, changed);
    return open_complaint(file);
  };
  EXPECT_THAT(with("s0/m0/output/small/0", "s0/m0/oatput/small/0"),
              AllOf(HasSubstr(file), HasSubstr("row 2 of the index: ")));
  EXPECT_THAT(with("s0/m0/output/small/0", "s0/m0/output/empty/0"),
              HasSubstr("row 2 of the index: s0/m0/output/empty/0 occurs twice"));
  EXPECT_THAT(with("3x7", "3x8"), HasSubstr("row 2 of the index: shape 3x8 contradicts placement"));
  EXPECT_THAT(with("128x129", "129x128"), HasSubstr("row 3 of the index: "));
  EXPECT_THAT(with("128x129", "128y129"), HasSubstr("is not a list of extents"));
  EXPECT_THAT(
      with("s0|m0|output|large|0", "s0|m0|output|lange|0"),
      HasSubstr(file + ": the file is damaged: cannot open dataset 's0|m0|output|lange|0': "));
}

TEST(RankFile, RecordOfAnotherFileIsRefused) {
  const TemporaryDirectory folder;
  const RankFile read(write_small_file(folder.path()));
  Record record = read.records()[2];
  record.dataset = "/blob/000009";
  EXPECT_THROW(static_cast<void>(read.bytes(record)), InternalError);
}

// ---- whole traces ------------------------------------------------------------------------------

void write_trace(const std::string& directory) {
  Manifest manifest;
  manifest.pass = "candidate";
  manifest.world_size = 2;
  manifest.steps = {0, 4};
  write_manifest(directory, manifest);
  for (const std::int64_t step : manifest.steps) {
    for (int rank = 0; rank < 2; ++rank) {
      TraceWriter writer(step_file(directory, step, rank), two_ranks(rank));
      Record record = record_of("x", ElementType::kU8, {1});
      record.id.step = step;
      writer.append(record, Bytes(1, static_cast<std::byte>(rank)));
      writer.commit();
    }
  }
}

std::string trace_complaint(const std::string& directory) {
  return message_of<FormatError>([&] { static_cast<void>(Trace::open(directory)); });
}

TEST(Trace, OpensEveryRankOfEveryStep) {
  const TemporaryDirectory folder;
  write_trace(folder.path());
  const Trace trace = Trace::open(folder.path());
  EXPECT_EQ(trace.directory(), folder.path());
  EXPECT_EQ(trace.manifest().world_size, 2);
  ASSERT_EQ(trace.steps().size(), 2U);
  EXPECT_EQ(trace.steps()[1].step, 4);
  ASSERT_EQ(trace.steps()[1].ranks.size(), 2U);
  const RankFile& file = trace.steps()[1].ranks[1];
  EXPECT_EQ(file.layout().rank, 1);
  EXPECT_EQ(stored(file, file.records()[0]), Bytes(1, std::byte{1}));
  EXPECT_TRUE(is_complete(folder.path()));
}

TEST(Trace, AbsentFileNamesRankStepAndRemedy) {
  const TemporaryDirectory folder;
  write_trace(folder.path());
  const std::string file = step_file(folder.path(), 4, 1);
  std::filesystem::remove(file);
  EXPECT_FALSE(is_complete(folder.path()));
  EXPECT_THAT(trace_complaint(folder.path()),
              AllOf(HasSubstr("rank 1 wrote nothing for step 4"),
                    HasSubstr(file),
                    HasSubstr("forward the TTRACE_ variables to every rank")));
}

TEST(Trace, TemporaryFileSaysTheRankWasStopped) {
  const TemporaryDirectory folder;
  write_trace(folder.path());
  const std::string file = step_file(folder.path(), 0, 1);
  std::filesystem::rename(file, file + ".tmp");
  EXPECT_FALSE(is_complete(folder.path()));
  EXPECT_THAT(trace_complaint(folder.path()),
              AllOf(HasSubstr("rank 1 was stopped while it wrote step 0"),
                    HasSubstr(file + ".tmp"),
                    HasSubstr("run the pass again")));
}

TEST(Trace, FailedFileIsQuoted) {
  const TemporaryDirectory folder;
  write_trace(folder.path());
  std::filesystem::remove(step_file(folder.path(), 4, 0));
  write_file(failed_file(folder.path(), 4, 0), "the queue stood still for 60 s\n");
  EXPECT_FALSE(is_complete(folder.path()));
  EXPECT_THAT(trace_complaint(folder.path()),
              HasSubstr("rank 0 could not finish step 4: the queue stood still for 60 s ("));
}

TEST(Trace, FileOfAnotherRankOrStepIsRefused) {
  const TemporaryDirectory folder;
  write_trace(folder.path());
  const std::string first = step_file(folder.path(), 0, 0);
  const std::string second = step_file(folder.path(), 0, 1);
  std::filesystem::copy_file(first, second, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(trace_complaint(folder.path()),
              HasSubstr("rank 0 of 2 wrote this file, but the manifest expects rank 1 of 2"));
  std::filesystem::copy_file(
      step_file(folder.path(), 4, 1), second, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(trace_complaint(folder.path()),
              HasSubstr("holds s4/m0/output/x/0, which does not belong to step 0"));
}

TEST(Trace, FolderWithoutManifestIsNoTrace) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(is_complete(folder.path()));
  EXPECT_THAT(trace_complaint(folder.path()), HasSubstr("manifest.json"));
}

}  // namespace
}  // namespace ttrace
