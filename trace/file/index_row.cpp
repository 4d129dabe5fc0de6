#include "trace/file/index_row.h"

#include "trace/base/parse_integer.h"
#include "trace/file/trace_schema.h"

#include <ttrace/error.h>

#include <charconv>

namespace ttrace {
namespace {

std::vector<std::int64_t> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  if (text == kScalarShape) {
    return shape;
  }
  const char* position = text.data();
  const char* const end = position + text.size();
  while (true) {
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(position, end, extent);
    TTRACE_CHECK(error == std::errc() && extent >= 0 && (next == end || *next == 'x'),
                 FormatError,
                 "shape '",
                 text,
                 "' is not a list of extents like 4x128");
    shape.push_back(extent);
    if (next == end) {
      return shape;
    }
    position = next + 1;
  }
}

}  // namespace

std::uint64_t bytes_needed(const Record& record) {
  std::int64_t bytes = 0;
  TTRACE_CHECK(!__builtin_mul_overflow(element_count(record.shape),
                                       static_cast<std::int64_t>(element_size(record.type)),
                                       &bytes),
               FormatError,
               "the tensor has more bytes than 64 bits can count");
  return static_cast<std::uint64_t>(bytes);
}

PlacementElsewhere parse_elsewhere(std::string_view text) {
  const std::size_t last = text.rfind('+');
  const std::size_t first = last == std::string_view::npos ? last : text.rfind('+', last - 1);
  TTRACE_CHECK(first != std::string_view::npos && first < last,
               FormatError,
               "placement '",
               text,
               "' does not name its bytes");
  const auto offset = parse_integer(text.substr(first + 1, last - first - 1));
  const auto bytes = parse_integer(text.substr(last + 1));
  TTRACE_CHECK(offset && bytes, FormatError, "placement '", text, "' does not name its bytes");
  return {std::string(text.substr(1, first - 1)),
          static_cast<std::uint64_t>(*offset),
          static_cast<std::uint64_t>(*bytes)};
}

std::uint64_t parse_time(const Table& table, std::size_t row, std::size_t column) {
  const std::uint64_t time = table.u64(row, column);
  TTRACE_CHECK(time <= kLongestTime, FormatError, "the time ", time, " ns is impossible");
  return time;
}

Record parse_row(const Table& index,
                 std::size_t row,
                 std::string_view placement,
                 const Record* alike) {
  namespace column = index_column;
  Record record;
  record.id = parse_tensor_id(index.text(row, column::kId));
  record.type = parse_element_type(index.text(row, column::kDtype));
  record.shape = parse_shape(index.text(row, column::kShape));
  record.placement = alike == nullptr ? parse_placement(placement) : alike->placement;
  record.order = index.u64(row, column::kOrder);
  const unsigned inferred = index.u8(row, column::kInferred);
  TTRACE_CHECK((inferred & ~kKnownBits) == 0,
               FormatError,
               "'inferred' is ",
               inferred,
               ", which has bits that this version does not know");
  record.inferred = (inferred & kInferredOwner) != 0;
  record.undeclared = (inferred & kUndeclaredPlacement) != 0;
  record.needs_no_gradient = (inferred & kNeedsNoGradient) != 0;
  record.lacks_noise = (inferred & kLacksNoise) != 0;
  record.dataset = index.text(row, column::kDataset);
  record.offset = index.u64(row, column::kOffset);
  record.bytes = index.u64(row, column::kBytes);
  record.digest = index.u64(row, column::kDigest);
  record.norm = index.f64(row, column::kNorm);
  record.max_abs = index.f64(row, column::kMaxAbs);
  record.nonfinite = index.u64(row, column::kNonfinite);
  const bool agrees = alike == nullptr ? record.placement.local_shape() == record.shape
                                       : alike->shape == record.shape;
  TTRACE_CHECK(agrees,
               FormatError,
               "shape ",
               index.text(row, column::kShape),
               " contradicts placement '",
               index.text(row, column::kPlacement),
               "'");
  const std::uint64_t needed = bytes_needed(record);
  TTRACE_CHECK(record.bytes == needed || record.bytes == 0,
               FormatError,
               name_of(record.type),
               " of shape ",
               index.text(row, column::kShape),
               " has ",
               needed,
               " bytes, not ",
               record.bytes);
  TTRACE_CHECK((record.dataset == kNoDataset) == (record.bytes == 0),
               FormatError,
               "dataset '",
               record.dataset,
               "' does not fit ",
               record.bytes,
               " bytes");
  return record;
}

void check_range(const Record& record, const Extent& extent) {
  TTRACE_CHECK(record.offset <= extent.bytes && record.bytes <= extent.bytes - record.offset,
               FormatError,
               "bytes ",
               record.offset,
               " to ",
               record.offset,
               "+",
               record.bytes,
               " lie outside dataset '",
               record.dataset,
               "' of ",
               extent.bytes,
               " bytes");
  TTRACE_CHECK((extent.offset + record.offset) % element_size(record.type) == 0,
               FormatError,
               "offset ",
               record.offset,
               " is not aligned for ",
               name_of(record.type));
}

}  // namespace ttrace
