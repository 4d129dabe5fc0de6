// Sums over the slices of a pair of tensors, all of them in one pass.
//
// A slice holds all elements that have one index in one dimension; a row those that differ in the
// last index only. Sums are taken in double, in row-major order and by one thread, so that nothing
// but the tensors decides their bits.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ttrace {

// Longer dimensions are not sliced: their slices are many and hold little each.
inline constexpr std::int64_t kMostSlices = 65536;

// Reference r, other side c, d = c - r. Sums are over elements finite on both sides.
struct SliceSums {
  std::int64_t count = 0;
  double reference_squared = 0.0;   // sum r^2
  double difference_squared = 0.0;  // sum d^2
  double along_reference = 0.0;     // sum r d: <c, r> - <r, r> without what cancels there
  double difference = 0.0;          // sum d

  void add(const SliceSums& other);
};

// A row-major tensor seen as [outer, size, inner]; slice i is [:, i, :].
struct SliceView {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;

  // The slice of the element at row-major position `position`.
  [[nodiscard]] std::int64_t slice_of(std::size_t position) const {
    return static_cast<std::int64_t>(position) / inner % size;
  }
  [[nodiscard]] std::int64_t slice_elements() const { return outer * inner; }
};

// The slices of dimension `dim`.
[[nodiscard]] SliceView view_along(std::span<const std::int64_t> shape, std::size_t dim);

// One way to cut a tensor into slices.
struct Slicing {
  static constexpr std::size_t kRows = static_cast<std::size_t>(-1);

  std::size_t dim = 0;     // kRows where the slices are rows
  std::int64_t count = 0;  // slices
  std::size_t first = 0;   // position of slice 0 among those of all slicings

  [[nodiscard]] bool is_of_rows() const { return dim == kRows; }
  // What its own slices have of a list of all slicings' slices.
  template <class T>
  [[nodiscard]] std::span<const T> of(const std::vector<T>& all) const {
    return std::span(all).subspan(first, static_cast<std::size_t>(count));
  }
  bool operator==(const Slicing&) const = default;
};

// The slices of one of slicings_of(shape).
[[nodiscard]] SliceView view_of(std::span<const std::int64_t> shape, const Slicing& slicing);

enum class SliceChoice : std::uint8_t {
  // Every dimension of 2 to kMostSlices indices, and rows where several leading dimensions make up
  // at most kMostSlices of them; the rows end at the last dimension of more than one index. None
  // where fewer than two dimensions have more than one index: slices would be single elements or
  // everything. Noise is stored of these.
  kStored,
  // Every dimension of more than one index, however many, and the rows of any tensor of several
  // dimensions, though they be slices of its first dimension or single elements. A cause may lie in
  // any of these.
  kAll,
};

// Dimensions in ascending order, then rows. None of a tensor without elements.
[[nodiscard]] std::vector<Slicing> slicings_of(std::span<const std::int64_t> shape,
                                               SliceChoice choice = SliceChoice::kStored);

struct Slices {
  std::vector<Slicing> slicings;
  std::vector<SliceSums> sums;  // slicing by slicing
  SliceSums all;                // of the whole tensor

  [[nodiscard]] std::span<const SliceSums> of(const Slicing& slicing) const {
    return slicing.of(sums);
  }
  // Null where this dimension is not sliced.
  [[nodiscard]] const Slicing* along(std::size_t dim) const;
};

enum class SliceDetail : std::uint8_t {
  kAll,
  kDifferences,  // of slices of the last dimension nothing but count and difference_squared
};

// Row-major tensors of one shape.
[[nodiscard]] Slices sum_slices(std::span<const std::int64_t> shape,
                                ElementType reference_type,
                                const void* reference,
                                ElementType other_type,
                                const void* other,
                                SliceDetail detail = SliceDetail::kAll,
                                SliceChoice choice = SliceChoice::kStored);

// The same, as far as a walk over the tensors has come.
class SliceWalk {
 public:
  SliceWalk(std::span<const std::int64_t> shape,
            ElementType reference_type,
            const void* reference,
            ElementType other_type,
            const void* other,
            SliceDetail detail = SliceDetail::kAll,
            SliceChoice choice = SliceChoice::kStored);
  SliceWalk(SliceWalk&&) noexcept;
  ~SliceWalk();

  // Adds what lies in whole rows before element number `end`.
  void go_on_to(std::int64_t end);
  // Requires: has gone on to the last element.
  [[nodiscard]] Slices finish() &&;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ChunkSums;

// How the kernel of trace/kernels/chunk_sums.h is to read tensors of this shape.
struct SliceRows {
  std::int64_t row = 0;  // elements of a row: what differs in the last index only
  bool columns = false;  // whether the last dimension has slices
};
[[nodiscard]] SliceRows slice_rows(std::span<const std::int64_t> shape);

// What sum_slices() with kDifferences returns for tensors of this shape, from the sums of all
// chunks of their rows and of their columns: difference_squared everywhere, and along_reference of
// the whole tensor. Other fields are 0.
[[nodiscard]] Slices join_chunks(std::span<const std::int64_t> shape,
                                 std::span<const ChunkSums> chunks,
                                 std::span<const double> columns);

// Sums over `count` consecutive elements.
[[nodiscard]] SliceSums sum_elements(ElementType reference_type,
                                     const void* reference,
                                     ElementType other_type,
                                     const void* other,
                                     std::int64_t count);

}  // namespace ttrace
