#include "trace/sums/slices.h"

#include "trace/base/instruction_set.h"
#include "trace/kernels/chunk_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace ttrace {
namespace {

constexpr std::int64_t kChunk = kSliceChunk;
constexpr std::int64_t kLanes = kSliceLanes;
using Lanes [[gnu::vector_size(kLanes * sizeof(double))]] = double;

// Consecutive elements of one row in double, those not finite on both sides as zeros. What follows
// up to a multiple of kLanes is zero as well.
struct Chunk {
  std::array<double, kChunk> reference;
  std::array<double, kChunk> difference;
  std::array<bool, kChunk> left_out;
  std::int64_t size = 0;
  std::int64_t nonfinite = 0;
};

const std::byte* advance(const void* data, ElementType type, std::int64_t elements) {
  return static_cast<const std::byte*>(data) +
         static_cast<std::size_t>(elements) * element_size(type);
}

void leave_out_nonfinite(Chunk& chunk) {
  for (std::int64_t i = 0; i < chunk.size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    chunk.left_out[at] =
        !std::isfinite(chunk.reference[at]) || !std::isfinite(chunk.difference[at]);
    if (chunk.left_out[at]) {
      chunk.reference[at] = 0.0;
      chunk.difference[at] = 0.0;
      ++chunk.nonfinite;
    }
  }
}

[[gnu::always_inline]] inline void widen_floats(const std::byte* source,
                                                std::int64_t count,
                                                double* target) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    float value;  // may lie at any address
    std::memcpy(&value, source + i * std::int64_t{sizeof value}, sizeof value);
    target[i] = static_cast<double>(value);
  }
}

[[gnu::always_inline]] inline void widen_bfloats(const std::byte* source,
                                                 std::int64_t count,
                                                 double* target) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, source + i * std::int64_t{sizeof bits}, sizeof bits);
    const std::uint32_t upper_half = std::uint32_t{bits} << 16U;
    float value;
    std::memcpy(&value, &upper_half, sizeof value);
    target[i] = static_cast<double>(value);
  }
}

// The two usual types in the caller's instruction set.
[[gnu::always_inline]] inline void widen(ElementType type,
                                         const std::byte* source,
                                         std::int64_t count,
                                         double* target) {
  if (type == ElementType::kF32) {
    widen_floats(source, count, target);
  } else if (type == ElementType::kBF16) {
    widen_bfloats(source, count, target);
  } else {
    to_double(type, source, count, target);
  }
}

// Both sides of what is summed.
struct BothSides {
  ElementType reference_type;
  const void* reference;
  ElementType other_type;
  const void* other;

  [[gnu::always_inline]] void load(std::int64_t position, std::int64_t size, Chunk& chunk) const {
    chunk.size = size;
    chunk.nonfinite = 0;
    double* r = chunk.reference.data();
    double* d = chunk.difference.data();
    widen(reference_type, advance(reference, reference_type, position), size, r);
    widen(other_type, advance(other, other_type, position), size, d);
    double probe = 0.0;  // NaN where anything is not finite
#pragma omp simd reduction(+ : probe)
    for (std::int64_t i = 0; i < size; ++i) {
      d[i] -= r[i];
      probe += 0.0 * d[i];
    }
    if (std::isnan(probe)) {
      leave_out_nonfinite(chunk);
    }
    for (std::int64_t i = size; i % kLanes != 0; ++i) {
      r[i] = 0.0;
      d[i] = 0.0;
    }
  }
};

// Sums of the last dimension's slices, side by side so that neighbours are added at once, with room
// for whole lanes.
struct Columns {
  Columns(std::int64_t count, SliceDetail detail)
      : difference_squared(static_cast<std::size_t>(count + kLanes)),
        left_out(static_cast<std::size_t>(count)) {
    if (detail == SliceDetail::kAll) {
      reference_squared = along_reference = difference = difference_squared;
    }
  }

  // Sums from index `first` on.
  void leave_out(const Chunk& chunk, std::int64_t first) {
    for (std::int64_t i = 0; chunk.nonfinite > 0 && i < chunk.size; ++i) {
      left_out[static_cast<std::size_t>(first + i)] +=
          chunk.left_out[static_cast<std::size_t>(i)] ? 1 : 0;
    }
  }

  // Sums over slices of `rows` elements each.
  void write(std::int64_t rows, SliceSums* target) const {
    for (std::size_t i = 0; i < left_out.size(); ++i) {
      target[i].count = rows - left_out[i];
      target[i].difference_squared = difference_squared[i];
      if (!reference_squared.empty()) {
        target[i].reference_squared = reference_squared[i];
        target[i].along_reference = along_reference[i];
        target[i].difference = difference[i];
      }
    }
  }

  std::vector<double> difference_squared;
  std::vector<double> reference_squared;  // this and what follows: empty without detail
  std::vector<double> along_reference;
  std::vector<double> difference;
  std::vector<std::int64_t> left_out;
};

[[gnu::always_inline]] inline void add_to(double* target, const Lanes& addend) {
  Lanes sum;
  std::memcpy(&sum, target, sizeof sum);
  sum += addend;
  std::memcpy(target, &sum, sizeof sum);
}

// `count` consecutive elements from `start` on, a row where there are columns.
struct Stretch {
  const BothSides& pair;
  std::int64_t start;
  std::int64_t count;
  Columns* columns;  // null: not summed
  SliceDetail detail = SliceDetail::kAll;
};

template <SliceDetail detail>
[[gnu::always_inline]] inline void add_chunk(const Chunk& chunk,
                                             Columns* columns,
                                             std::int64_t first,
                                             SliceSums& row) {
  Lanes reference_squared = {};
  Lanes difference_squared = {};
  Lanes along_reference = {};
  Lanes difference = {};
  for (std::int64_t i = 0; i < chunk.size; i += kLanes) {
    Lanes r;
    Lanes d;
    std::memcpy(&r, chunk.reference.data() + i, sizeof r);
    std::memcpy(&d, chunk.difference.data() + i, sizeof d);
    const Lanes rr = r * r;
    const Lanes dd = d * d;
    const Lanes rd = r * d;
    reference_squared += rr;
    difference_squared += dd;
    along_reference += rd;
    difference += d;
    if (columns != nullptr) {
      add_to(columns->difference_squared.data() + first + i, dd);
    }
    if (columns != nullptr && detail == SliceDetail::kAll) {
      add_to(columns->reference_squared.data() + first + i, rr);
      add_to(columns->along_reference.data() + first + i, rd);
      add_to(columns->difference.data() + first + i, d);
    }
  }
  row.count += chunk.size - chunk.nonfinite;
  row.reference_squared += total_of_lanes(reference_squared);
  row.difference_squared += total_of_lanes(difference_squared);
  row.along_reference += total_of_lanes(along_reference);
  row.difference += total_of_lanes(difference);
}

template <SliceDetail detail>
[[gnu::always_inline]] inline void sum_chunks(const Stretch& stretch, SliceSums& row) {
  Chunk chunk;
  for (std::int64_t done = 0; done < stretch.count; done += chunk.size) {
    stretch.pair.load(stretch.start + done, std::min(kChunk, stretch.count - done), chunk);
    add_chunk<detail>(chunk, stretch.columns, done, row);
    if (stretch.columns != nullptr) {
      stretch.columns->leave_out(chunk, done);
    }
  }
}

[[gnu::always_inline]] inline void sum_stretch(const Stretch& stretch, SliceSums& row) {
  if (stretch.detail == SliceDetail::kAll) {
    sum_chunks<SliceDetail::kAll>(stretch, row);
  } else {
    sum_chunks<SliceDetail::kDifferences>(stretch, row);
  }
}

TTRACE_AVX512 void sum_avx512(const Stretch& stretch, SliceSums& row) {
  sum_stretch(stretch, row);
}
TTRACE_AVX2 void sum_avx2(const Stretch& stretch, SliceSums& row) {
  sum_stretch(stretch, row);
}
void sum_baseline(const Stretch& stretch, SliceSums& row) {
  sum_stretch(stretch, row);
}

// Adds the elements to `row`.
void sum(const Stretch& stretch, SliceSums& row) {
  static auto* const fastest_sum = fastest(sum_baseline, sum_avx2, sum_avx512);
  fastest_sum(stretch, row);
}

// Steps through the indices of the leading dimensions and finds the slices that a row is part of.
class RowSlices {
 public:
  RowSlices(std::span<const std::int64_t> shape, std::size_t last, Slices& slices)
      : shape_(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(last)),
        index_(last),
        slices_(slices) {}

  void add(const SliceSums& row) {
    for (const Slicing& slicing : slices_.slicings) {
      if (slicing.dim < index_.size()) {
        at(slicing, index_[slicing.dim]).add(row);
      } else if (slicing.dim > index_.size()) {
        at(slicing, number_).add(row);
      }
    }
    ++number_;
    for (std::size_t dim = index_.size(); dim-- > 0 && ++index_[dim] == shape_[dim];) {
      index_[dim] = 0;
    }
  }

 private:
  SliceSums& at(const Slicing& slicing, std::int64_t index) {
    return slices_.sums[slicing.first + static_cast<std::size_t>(index)];
  }

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> index_;
  std::int64_t number_ = 0;
  Slices& slices_;
};

// The dimension that rows lie along. Of what is stored, it is the last one of more than one index:
// dimensions of one index after it change nothing.
std::size_t last_dimension(std::span<const std::int64_t> shape,
                           SliceChoice choice = SliceChoice::kStored) {
  std::size_t last = shape.size();
  while (choice == SliceChoice::kStored && last > 1 && shape[last - 1] == 1) {
    --last;
  }
  return last - 1;
}

std::int64_t count_of(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  return elements;
}

Slices empty_slices(std::span<const std::int64_t> shape,
                    SliceChoice choice = SliceChoice::kStored) {
  Slices slices;
  slices.slicings = slicings_of(shape, choice);
  if (!slices.slicings.empty()) {
    const Slicing& final = slices.slicings.back();
    slices.sums.resize(final.first + static_cast<std::size_t>(final.count));
  }
  return slices;
}

}  // namespace

void SliceSums::add(const SliceSums& other) {
  count += other.count;
  reference_squared += other.reference_squared;
  difference_squared += other.difference_squared;
  along_reference += other.along_reference;
  difference += other.difference;
}

SliceView view_along(std::span<const std::int64_t> shape, std::size_t dim) {
  SliceView view;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    (i < dim ? view.outer : i == dim ? view.size : view.inner) *= shape[i];
  }
  return view;
}

SliceView view_of(std::span<const std::int64_t> shape, const Slicing& slicing) {
  return slicing.is_of_rows() ? SliceView{1, slicing.count, count_of(shape) / slicing.count}
                              : view_along(shape, slicing.dim);
}

const Slicing* Slices::along(std::size_t dim) const {
  const auto found = std::ranges::find(slicings, dim, &Slicing::dim);
  return found == slicings.end() ? nullptr : &*found;
}

std::vector<Slicing> slicings_of(std::span<const std::int64_t> shape, SliceChoice choice) {
  const bool all = choice == SliceChoice::kAll;
  const auto long_ones =
      std::count_if(shape.begin(), shape.end(), [](std::int64_t size) { return size > 1; });
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::vector<Slicing> slicings;
  if (shape.empty() || empty || (!all && long_ones < 2)) {
    return slicings;
  }
  std::size_t first = 0;
  const auto append = [&](std::size_t dim, std::int64_t count) {
    slicings.push_back({dim, count, first});
    first += static_cast<std::size_t>(count);
  };
  const std::int64_t most = all ? std::numeric_limits<std::int64_t>::max() : kMostSlices;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] > 1 && shape[dim] <= most) {
      append(dim, shape[dim]);
    }
  }
  const std::int64_t rows = count_of(shape.first(last_dimension(shape, choice)));
  if (all ? shape.size() > 1 : long_ones > 2 && rows <= most) {
    append(Slicing::kRows, rows);
  }
  return slicings;
}

// Where there are no slices, the whole tensor is one row.
struct SliceWalk::State {
  State(std::span<const std::int64_t> shape,
        const BothSides& both,
        SliceDetail how,
        SliceChoice choice)
      : pair(both),
        detail(how),
        elements(count_of(shape)),
        slices(empty_slices(shape, choice)),
        last(slices.slicings.empty() ? 0 : last_dimension(shape, choice)),
        row(slices.slicings.empty() ? elements : shape[last]),
        has_columns(!slices.slicings.empty() && slices.along(last) != nullptr),
        columns(has_columns ? row : 0, how),
        leading(shape, last, slices) {}

  BothSides pair;
  SliceDetail detail;
  std::int64_t elements;
  std::int64_t done = 0;
  Slices slices;
  std::size_t last;
  std::int64_t row;
  bool has_columns;
  Columns columns;
  RowSlices leading;
};

SliceWalk::SliceWalk(std::span<const std::int64_t> shape,
                     ElementType reference_type,
                     const void* reference,
                     ElementType other_type,
                     const void* other,
                     SliceDetail detail,
                     SliceChoice choice)
    : state_(std::make_unique<State>(
          shape, BothSides{reference_type, reference, other_type, other}, detail, choice)) {}

SliceWalk::SliceWalk(SliceWalk&&) noexcept = default;
SliceWalk::~SliceWalk() = default;

void SliceWalk::go_on_to(std::int64_t end) {
  State& state = *state_;
  for (; state.row > 0 && state.done + state.row <= end; state.done += state.row) {
    SliceSums row;
    sum({state.pair,
         state.done,
         state.row,
         state.has_columns ? &state.columns : nullptr,
         state.detail},
        row);
    if (!state.slices.slicings.empty()) {
      state.leading.add(row);
    }
    state.slices.all.add(row);
  }
}

Slices SliceWalk::finish() && {
  State& state = *state_;
  if (state.has_columns) {
    const Slicing& of_columns = *state.slices.along(state.last);
    state.columns.write(state.elements / state.row, state.slices.sums.data() + of_columns.first);
  }
  return std::move(state.slices);
}

Slices sum_slices(std::span<const std::int64_t> shape,
                  ElementType reference_type,
                  const void* reference,
                  ElementType other_type,
                  const void* other,
                  SliceDetail detail,
                  SliceChoice choice) {
  SliceWalk walk(shape, reference_type, reference, other_type, other, detail, choice);
  walk.go_on_to(count_of(shape));
  return std::move(walk).finish();
}

SliceRows slice_rows(std::span<const std::int64_t> shape) {
  const Slices slices = empty_slices(shape);
  if (slices.slicings.empty()) {
    return {count_of(shape), false};
  }
  const std::size_t last = last_dimension(shape);
  return {shape[last], slices.along(last) != nullptr};
}

Slices join_chunks(std::span<const std::int64_t> shape,
                   std::span<const ChunkSums> chunks,
                   std::span<const double> columns) {
  Slices slices = empty_slices(shape);
  const std::size_t last = slices.slicings.empty() ? 0 : last_dimension(shape);
  RowSlices leading(shape, last, slices);
  const std::int64_t of_row = (slice_rows(shape).row + kChunk - 1) / kChunk;
  for (std::size_t first = 0; first < chunks.size(); first += static_cast<std::size_t>(of_row)) {
    SliceSums row;
    for (const ChunkSums& chunk : chunks.subspan(first, static_cast<std::size_t>(of_row))) {
      row.along_reference += chunk.along_reference;
      row.difference_squared += chunk.difference_squared;
    }
    leading.add(row);
    slices.all.add(row);
  }
  for (std::size_t column = 0; column < columns.size(); ++column) {
    slices.sums[slices.along(last)->first + column].difference_squared = columns[column];
  }
  return slices;
}

SliceSums sum_elements(ElementType reference_type,
                       const void* reference,
                       ElementType other_type,
                       const void* other,
                       std::int64_t count) {
  const BothSides pair{reference_type, reference, other_type, other};
  SliceSums sums;
  sum({pair, 0, count, nullptr}, sums);
  return sums;
}

}  // namespace ttrace
