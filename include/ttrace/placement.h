// Where a rank's local tensor lies in the logical tensor, which is the one that a single device
// would have.
//
//   const ttrace::Placement placement = ttrace::whole(shape);  // every rank holds all of it
//
// One form covers contiguous shards, strided ones (a gated linear_fc1) and zig-zag ones, index maps
// (permuted samples, rows that a router sent), padding, flat ranges of a sharded optimizer,
// replicas, partial sums and scale factors. Programs rarely build one: Annotations::placement()
// does. A placement is a claim of the program; merging the ranks' tensors checks it.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Local indices [local, local + extent) stand for logical indices [logical, logical + extent).
struct Segment {
  std::int64_t local = 0;
  std::int64_t logical = 0;
  std::int64_t extent = 0;

  bool operator==(const Segment&) const = default;
};

// One dimension. Local indices outside of all segments are padding. REQUIRES: segments are sorted
// by `local`.
struct DimPlacement {
  std::int64_t local_size = 0;
  std::int64_t logical_size = 0;
  std::vector<Segment> segments;
  // Logical indices may be on no rank at all, such as rows that a router dropped.
  bool sparse = false;

  bool operator==(const DimPlacement&) const = default;
};

// Elements [first, first + count) of a tensor in row-major order.
struct FlatRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const FlatRange&) const = default;
};

// Where one record lies.
struct Placement {
  std::vector<DimPlacement> dims;
  // The logical value is the sum of `partial_count` addends, and this is number `partial_index` of
  // them. Records of one id with equal region and equal partial_index are replicas, which must
  // agree.
  int partial_index = 0;
  int partial_count = 1;
  std::string partial_over;  // axes summed over, "tp" or "tp,dp"; for messages
  double scale = 1.0;        // the local value times `scale` is the logical value
  // Set where a distributed optimizer cuts this rank's part of a parameter at arbitrary elements:
  // the record is one-dimensional and holds these elements of the tensor that `dims` place. If
  // several ranks hold an element, they must agree on it.
  std::optional<FlatRange> flat = {};

  bool operator==(const Placement&) const = default;

  // The shape of the record's own tensor, and that of the logical one.
  [[nodiscard]] std::vector<std::int64_t> local_shape() const;
  [[nodiscard]] std::vector<std::int64_t> logical_shape() const;
  // Whether every local element is the logical element of the same index, and nothing is summed or
  // scaled.
  [[nodiscard]] bool is_whole() const;
};

// The placement of a tensor that every rank holds whole.
[[nodiscard]] Placement whole(std::span<const std::int64_t> shape);

// Throws FormatError where segments overlap locally or logically or leave their dimension, a flat
// range leaves its tensor, a partial index is not below its count, or several dimensions are
// sparse.
void validate(const Placement& placement);

// In an index map: this local index is padding.
inline constexpr std::int64_t kPadding = -1;

// The dimension whose local index i stands for the logical index indices[i]. Throws UsageError for
// an index that is outside [0, logical_size), or that occurs twice.
[[nodiscard]] DimPlacement index_map(std::span<const std::int64_t> indices,
                                     std::int64_t logical_size);

// The placement of the same tensor after its samples were permuted along `dim`: local index i holds
// sample order[i]. Throws UsageError where `order` is no permutation of the dimension's local
// indices, or the placement is a flat range.
[[nodiscard]] Placement permute(Placement placement,
                                std::size_t dim,
                                std::span<const std::int64_t> order);

// The text that the trace index keeps, see docs/trace_format.md. parse_placement() reads it back.
[[nodiscard]] std::string to_string(const Placement& placement);
// Inverse of to_string(). Throws FormatError for any other text.
[[nodiscard]] Placement parse_placement(std::string_view text);

}  // namespace ttrace
