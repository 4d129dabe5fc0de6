// The constants on which the writer and the reader of rank files agree; docs/trace_format.md
// explains them.
#pragma once

#include "trace/file/hdf5_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ttrace {

// Attributes of the root group, next to kFormatAttribute.
inline constexpr const char* kRankAttribute = "rank";
inline constexpr const char* kWorldSizeAttribute = "world_size";
inline constexpr const char* kLayoutAttribute = "layout";
inline constexpr const char* kRecordsAttribute = "records";
inline constexpr const char* kNotesAttribute = "notes";
inline constexpr const char* kNotSeenAttribute = "not_seen";  // absent if there is nothing
// When the step began: nanoseconds since 1970-01-01 UTC, u64. Only a file that has it has times.
inline constexpr const char* kBeganAttribute = "began";

// Tensors of this size and more have a dataset of their own, others share blobs.
inline constexpr std::size_t kOwnDatasetBytes = std::size_t{64} << 10;
inline constexpr std::size_t kDatasetAlignment = 4096;  // of datasets of kOwnDatasetBytes and more
inline constexpr std::size_t kBlobBytes = std::size_t{4} << 20;
inline constexpr std::size_t kBlobAlignment = 64;  // of a tensor within its blob

inline constexpr const char* kBlobGroup = "/blob";
inline constexpr const char* kIndexTable = "/index";
inline constexpr const char* kPartialIndexTable = "/partial_index";
// The records' sketches one after another, see store() in trace/sums/sketch.h; absent if there are
// none.
inline constexpr const char* kSketchData = "/sketches";
inline constexpr const char* kSumTable = "/sums";  // absent if there are none
// Squared norms of the columns of addends; absent if there are none.
inline constexpr const char* kSumColumnTable = "/sum_columns";
inline constexpr const char* kEdgeTable = "/edges";  // absent if there are none
inline constexpr const char* kCodeTable = "/code";   // absent if there are none
// In the index: the dataset of a tensor without elements, which has none.
inline constexpr const char* kNoDataset = "-";
// The shape of a scalar in the index.
inline constexpr const char* kScalarShape = "-";
// A longer placement, of many rows, lies in a blob like a small tensor, once however many records
// have it. Every row of the index is as wide as its longest text. In the index then stands
// "@BLOB+OFFSET+BYTES".
inline constexpr std::size_t kLongestPlacement = 256;
inline constexpr char kPlacementElsewhere = '@';
// Among the file's digests: that of all these texts, each with the one before as seed, in the order
// in which the index first names them.
inline constexpr const char* kPlacementsDigest = "placements";

// Positions in kIndexColumns.
namespace index_column {
enum : std::size_t {
  kId,
  kDtype,
  kShape,
  kPlacement,
  kDataset,
  kOffset,
  kBytes,
  kDigest,
  kNonfinite,
  kOrder,
  kNorm,
  kMaxAbs,
  kInferred,
  kTime,  // last: a file without kBeganAttribute does not have it
};
}  // namespace index_column

inline constexpr std::array<Column, 14> kIndexColumns = {{
    {"id", ColumnType::kText},
    {"dtype", ColumnType::kText},
    {"shape", ColumnType::kText},
    {"placement", ColumnType::kText},
    {"dataset", ColumnType::kText},
    {"offset", ColumnType::kU64},
    {"bytes", ColumnType::kU64},
    {"digest", ColumnType::kU64},
    {"nonfinite", ColumnType::kU64},
    {"order", ColumnType::kU64},
    {"norm", ColumnType::kF64},
    {"max_abs", ColumnType::kF64},
    {"inferred", ColumnType::kU8},
    {"time", ColumnType::kU64},
}};

// Of what an index has beside them, see SampleDim; an index of earlier versions does not.
inline constexpr std::array<Column, 1> kSampleColumns = {{{"samples", ColumnType::kText}}};

// The same, see Keep: `sketch` is the offset in kSketchData.
namespace keep_column {
enum : std::size_t { kKeep, kSketch };
}  // namespace keep_column
inline constexpr std::array<Column, 2> kKeepColumns = {
    {{"keep", ColumnType::kU8}, {"sketch", ColumnType::kU64}}};
inline constexpr std::uint64_t kNoSketch = ~std::uint64_t{0};

// What is written: the later ones first, so that `time` stays the last column.
inline constexpr auto kWrittenIndexColumns = [] {
  std::array<Column, kSampleColumns.size() + kKeepColumns.size() + kIndexColumns.size()> columns =
      {};
  auto next = columns.begin();
  for (const std::span<const Column> part : {std::span<const Column>(kSampleColumns),
                                             std::span<const Column>(kKeepColumns),
                                             std::span<const Column>(kIndexColumns)}) {
    next = std::copy(part.begin(), part.end(), next);
  }
  return columns;
}();

// Bits of the column `inferred`.
inline constexpr unsigned kInferredOwner = 1;        // Record::inferred
inline constexpr unsigned kUndeclaredPlacement = 2;  // Record::undeclared
inline constexpr unsigned kNeedsNoGradient = 4;      // Record::needs_no_gradient
inline constexpr unsigned kLacksNoise = 8;           // Record::lacks_noise
inline constexpr unsigned kKnownBits =
    kInferredOwner | kUndeclaredPlacement | kNeedsNoGradient | kLacksNoise;

// Positions in kEdgeColumns.
namespace edge_column {
enum : std::size_t { kConsumer, kProducer, kOrder, kTime };  // kTime as in the index
}  // namespace edge_column

inline constexpr std::array<Column, 4> kEdgeColumns = {{{"consumer", ColumnType::kText},
                                                        {"producer", ColumnType::kText},
                                                        {"order", ColumnType::kU64},
                                                        {"time", ColumnType::kU64}}};

// The columns of a file with times or of one without: `time` is the last.
template <std::size_t kCount>
constexpr std::span<const Column> columns_of(const std::array<Column, kCount>& columns,
                                             bool has_times) {
  return std::span(columns).first(has_times ? kCount : kCount - 1);
}
// A time beyond this (146 years) is damage.
inline constexpr std::uint64_t kLongestTime = std::uint64_t{1} << 62;

// Positions in kCodeColumns.
namespace code_column {
enum : std::size_t { kPath, kSource, kCall };
}  // namespace code_column

// An empty text: not known.
inline constexpr std::array<Column, 3> kCodeColumns = {
    {{"path", ColumnType::kText}, {"source", ColumnType::kText}, {"call", ColumnType::kText}}};

// In place of a squared norm that the program did not see.
inline constexpr double kUnseenAddend = -1.0;
// Positions in kSumColumns.
namespace sum_column {
enum : std::size_t { kId, kDtype, kAddends, kSquared };
}  // namespace sum_column

inline constexpr std::array<Column, 4> kSumColumns = {{{"id", ColumnType::kText},
                                                       {"dtype", ColumnType::kText},
                                                       {"addends", ColumnType::kU64},
                                                       {"squared", ColumnType::kF64}}};

// Positions in kSumColumnColumns.
namespace sum_column_column {
enum : std::size_t { kSum, kSquared };
}  // namespace sum_column_column

// `sum`: the row of kSumTable. The columns of a sum follow one another.
inline constexpr std::array<Column, 2> kSumColumnColumns = {
    {{"sum", ColumnType::kU64}, {"squared", ColumnType::kF64}}};

}  // namespace ttrace
