// Traces that keep sketches in place of bytes.
#include "trace/base/keep.h"

#include "support/temporary_directory.h"
#include "support/tensor_bytes.h"
#include "trace/file/rank_file.h"
#include "trace/file/trace_writer.h"
#include "trace/file_helpers.h"
#include "trace/sums/sketch.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kColumns = 130;

Record record_of(const std::string& path, ElementType type, std::vector<std::int64_t> shape) {
  Record record;
  record.id.path = path;
  record.type = type;
  record.shape = std::move(shape);
  record.placement = whole(record.shape);
  return record;
}

std::span<const std::byte> bytes_of(const TensorAt& tensor) {
  return {static_cast<const std::byte*>(tensor.data()), static_cast<std::size_t>(tensor.size())};
}

// A file with a large and a small tensor, of which it keeps what is asked for.
class Kept {
 public:
  explicit Kept(Keeping keeping) {
    TraceWriterOptions options;
    options.keeping = std::move(keeping);
    TraceWriter writer(path(), Layout(), options);
    writer.append(record_of("large", ElementType::kBF16, {kRows, kColumns}), bytes_of(large_));
    Record undeclared = record_of("undeclared", ElementType::kBF16, {kRows, kColumns});
    undeclared.undeclared = true;
    writer.append(undeclared, bytes_of(large_));
    writer.append(record_of("small", ElementType::kBF16, {4}), bytes_of(small_));
    Record data = record_of("data", ElementType::kBF16, {kRows, kColumns});
    data.id.kind = Kind::kData;
    writer.append(data, bytes_of(large_));
    Record rows = record_of("rows", ElementType::kBF16, {kRows, kColumns});
    rows.placement.dims[0].sparse = true;
    writer.append(rows, bytes_of(large_));
    writer.append(record_of("integers", ElementType::kI64, {kRows * kColumns}),
                  bytes_of(integers_));
    writer.commit();
  }

  [[nodiscard]] std::string path() const { return directory_ / "rank00000.h5"; }
  [[nodiscard]] const TensorAt& large() const { return large_; }

 private:
  TemporaryDirectory directory_;
  TensorAt large_{ElementType::kBF16, normal_values(kRows* kColumns, 1)};
  TensorAt small_{ElementType::kBF16, normal_values(4, 2)};
  TensorAt integers_{ElementType::kI64, normal_values(kRows* kColumns, 3, 100.0)};
};

TEST(Keep, OfALargeTensorTheSketchAloneIsKept) {
  const Kept kept({Keep::kSketch});
  const RankFile file(kept.path());
  const Record& record = file.records().front();
  EXPECT_EQ(record.keep, Keep::kSketch);
  EXPECT_TRUE(file.bytes(record).empty());
  EXPECT_TRUE(file.intact(record));
  const Kept with_bytes({Keep::kBytes});
  const RankFile bytes(with_bytes.path());
  EXPECT_EQ(record.digest, bytes.records().front().digest);
  EXPECT_EQ(record.norm, bytes.records().front().norm);
  const std::optional<Sketch> sketch = file.sketch(record);
  ASSERT_TRUE(sketch);
  const Sketch expected = sketch_of(ElementType::kBF16, bytes_of(kept.large()), record.placement);
  EXPECT_EQ(sketch->cells, expected.cells);
  EXPECT_EQ(sketch->row_squares, expected.row_squares);
  EXPECT_EQ(sketch->column_squares, expected.column_squares);
  EXPECT_EQ(sketch->largest, expected.largest);
  EXPECT_TRUE(sketch->digest == expected.digest);
}

// What must be equal, and rows that not every rank holds, are compared element by element.
TEST(Keep, SmallTensorsIntegersDataRowsAndWhatNobodyPlacedStayBytes) {
  const Kept kept({Keep::kSketch});
  const RankFile file(kept.path());
  ASSERT_THAT(file.records(), SizeIs(6));
  for (std::size_t i = 1; i < 6; ++i) {
    EXPECT_EQ(file.records()[i].keep, Keep::kBytes);
    EXPECT_FALSE(file.sketch(file.records()[i]));
    EXPECT_FALSE(file.bytes(file.records()[i]).empty());
  }
}

TEST(Keep, OfTensorsThatAPatternNamesElementsAreKept) {
  const Kept kept({Keep::kSketch, Pattern("TTRACE_ELEMENTS", "lar.e")});
  const RankFile file(kept.path());
  EXPECT_EQ(file.records().front().keep, Keep::kBytes);
  EXPECT_THAT(file.bytes(file.records().front()), SizeIs(kRows * kColumns * 2));
}

// A shard is below 64 KiB where the reference's tensor is not: the two would be kept unlike.
TEST(Keep, TheLogicalTensorsSizeDecides) {
  Record shard = record_of("large", ElementType::kBF16, {kRows / 4, kColumns});
  EXPECT_FALSE(can_be_sketched(shard));
  shard.placement.dims[0] = {kRows / 4, kRows, {{0, kRows / 2, kRows / 4}}};
  EXPECT_TRUE(can_be_sketched(shard));
}

// Symptom: a check ended with a segmentation fault. The forced pass in F32 kept a sketch of what
// took half as many bytes in the candidate, in BF16.
TEST(Keep, ItsPrecisionDoesNot) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32, ElementType::kF64}) {
    EXPECT_TRUE(can_be_sketched(record_of("large", type, {kSketchedElements})));
    EXPECT_FALSE(can_be_sketched(record_of("small", type, {kSketchedElements - 1})));
  }
}

TEST(Keep, BytesHaveNoSketchBeside) {
  const Kept kept({Keep::kBytes});
  const RankFile file(kept.path());
  EXPECT_FALSE(file.sketch(file.records().front()));
  EXPECT_FALSE(file.bytes(file.records().front()).empty());
}

TEST(Keep, ADamagedSketchIsRefused) {
  const Kept kept({Keep::kSketch});
  std::string bytes = read_file(kept.path());
  std::vector<std::byte> sketch;
  store(sketch_of(ElementType::kBF16, bytes_of(kept.large()), whole(std::vector{kRows, kColumns})),
        ElementType::kBF16,
        sketch);
  const std::string stored(reinterpret_cast<const char*>(sketch.data()), sketch.size());
  const std::size_t place = bytes.find(stored);
  ASSERT_NE(place, std::string::npos);
  bytes[place + 5] = static_cast<char>(bytes[place + 5] ^ 1);
  write_file(kept.path(), bytes);
  EXPECT_THAT(message_of<FormatError>([&] { const RankFile file(kept.path()); }),
              HasSubstr("/sketches"));
}

TEST(Keep, NamesAreReadBack) {
  for (const Keep keep : {Keep::kBytes, Keep::kSketch}) {
    EXPECT_EQ(find_keep(name_of(keep)), keep);
  }
  EXPECT_FALSE(find_keep("some"));
}

}  // namespace
}  // namespace ttrace::testing
