#include <ttrace/slices.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ttrace {
namespace {

constexpr std::int64_t kChunk = 512;

// Consecutive elements of one row in double, those not finite on both sides as zeros.
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

// Both sides of what is summed.
struct Pair {
  ElementType reference_type;
  const void* reference;
  ElementType other_type;
  const void* other;

  void load(std::int64_t position, std::int64_t size, Chunk& chunk) const {
    chunk.size = size;
    chunk.nonfinite = 0;
    double* r = chunk.reference.data();
    double* d = chunk.difference.data();
    to_double(reference_type, advance(reference, reference_type, position), size, r);
    to_double(other_type, advance(other, other_type, position), size, d);
    double probe = 0.0;  // NaN where anything is not finite
    for (std::int64_t i = 0; i < size; ++i) {
      d[i] -= r[i];
      probe += 0.0 * d[i];
    }
    if (std::isnan(probe)) {
      leave_out_nonfinite(chunk);
    }
  }
};

SliceSums sum_chunk(const Chunk& chunk) {
  double reference_squared = 0.0;
  double difference_squared = 0.0;
  double along_reference = 0.0;
  double difference = 0.0;
  const double* r = chunk.reference.data();
  const double* d = chunk.difference.data();
#pragma omp simd reduction(+ : reference_squared, difference_squared, along_reference, difference)
  for (std::int64_t i = 0; i < chunk.size; ++i) {
    reference_squared += r[i] * r[i];
    difference_squared += d[i] * d[i];
    along_reference += r[i] * d[i];
    difference += d[i];
  }
  return {chunk.size - chunk.nonfinite,
          reference_squared,
          difference_squared,
          along_reference,
          difference};
}

// Sums of the last dimension's slices, side by side so that neighbours are added at once.
class Columns {
 public:
  explicit Columns(std::int64_t count)
      : reference_squared_(static_cast<std::size_t>(count)),
        difference_squared_(reference_squared_),
        along_reference_(reference_squared_),
        difference_(reference_squared_),
        left_out_(static_cast<std::size_t>(count)) {}

  // From index `first` on.
  void add(const Chunk& chunk, std::int64_t first) {
    const double* r = chunk.reference.data();
    const double* d = chunk.difference.data();
    double* reference_squared = reference_squared_.data() + first;
    double* difference_squared = difference_squared_.data() + first;
    double* along_reference = along_reference_.data() + first;
    double* difference = difference_.data() + first;
#pragma omp simd
    for (std::int64_t i = 0; i < chunk.size; ++i) {
      reference_squared[i] += r[i] * r[i];
      difference_squared[i] += d[i] * d[i];
      along_reference[i] += r[i] * d[i];
      difference[i] += d[i];
    }
    for (std::int64_t i = 0; chunk.nonfinite > 0 && i < chunk.size; ++i) {
      left_out_[static_cast<std::size_t>(first + i)] +=
          chunk.left_out[static_cast<std::size_t>(i)] ? 1 : 0;
    }
  }

  // Of slices of `rows` elements each.
  void write(std::int64_t rows, SliceSums* target) const {
    for (std::size_t i = 0; i < left_out_.size(); ++i) {
      target[i] = {rows - left_out_[i],
                   reference_squared_[i],
                   difference_squared_[i],
                   along_reference_[i],
                   difference_[i]};
    }
  }

 private:
  std::vector<double> reference_squared_;
  std::vector<double> difference_squared_;
  std::vector<double> along_reference_;
  std::vector<double> difference_;
  std::vector<std::int64_t> left_out_;
};

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

// The last dimension of more than one index; dimensions of one index after it change nothing.
std::size_t last_dimension(std::span<const std::int64_t> shape) {
  std::size_t last = shape.size();
  while (last > 1 && shape[last - 1] == 1) {
    --last;
  }
  return last - 1;
}

}  // namespace

void SliceSums::add(const SliceSums& other) {
  count += other.count;
  reference_squared += other.reference_squared;
  difference_squared += other.difference_squared;
  along_reference += other.along_reference;
  difference += other.difference;
}

std::vector<Slicing> slicings_of(std::span<const std::int64_t> shape) {
  const auto long_ones =
      std::count_if(shape.begin(), shape.end(), [](std::int64_t size) { return size > 1; });
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::vector<Slicing> slicings;
  if (long_ones < 2 || empty) {
    return slicings;
  }
  std::size_t first = 0;
  const auto append = [&](std::size_t dim, std::int64_t count) {
    slicings.push_back({dim, count, first});
    first += static_cast<std::size_t>(count);
  };
  const std::size_t last = last_dimension(shape);
  std::int64_t rows = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] > 1 && shape[dim] <= kMostSlices) {
      append(dim, shape[dim]);
    }
    rows = dim < last ? std::min(rows, kMostSlices + 1) * shape[dim] : rows;
  }
  if (long_ones > 2 && rows <= kMostSlices) {
    append(shape.size(), rows);
  }
  return slicings;
}

Slices sum_slices(std::span<const std::int64_t> shape,
                  ElementType reference_type,
                  const void* reference,
                  ElementType other_type,
                  const void* other) {
  Slices slices;
  slices.slicings = slicings_of(shape);
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  if (slices.slicings.empty()) {
    slices.all = sum_elements(reference_type, reference, other_type, other, elements);
    return slices;
  }
  const Slicing& final = slices.slicings.back();
  slices.sums.resize(final.first + static_cast<std::size_t>(final.count));
  const std::size_t last = last_dimension(shape);
  const auto columns_of = std::find_if(slices.slicings.begin(),
                                       slices.slicings.end(),
                                       [&](const Slicing& slicing) { return slicing.dim == last; });
  const bool has_columns = columns_of != slices.slicings.end();
  Columns columns(has_columns ? shape[last] : 0);
  const Pair pair{reference_type, reference, other_type, other};
  RowSlices leading(shape, last, slices);
  Chunk chunk;
  for (std::int64_t start = 0; start < elements; start += shape[last]) {
    SliceSums row;
    for (std::int64_t column = 0; column < shape[last]; column += chunk.size) {
      pair.load(start + column, std::min(kChunk, shape[last] - column), chunk);
      row.add(sum_chunk(chunk));
      if (has_columns) {
        columns.add(chunk, column);
      }
    }
    leading.add(row);
    slices.all.add(row);
  }
  if (has_columns) {
    columns.write(elements / shape[last], slices.sums.data() + columns_of->first);
  }
  return slices;
}

SliceSums sum_elements(ElementType reference_type,
                       const void* reference,
                       ElementType other_type,
                       const void* other,
                       std::int64_t count) {
  const Pair pair{reference_type, reference, other_type, other};
  SliceSums sums;
  Chunk chunk;
  for (std::int64_t start = 0; start < count; start += chunk.size) {
    pair.load(start, std::min(kChunk, count - start), chunk);
    sums.add(sum_chunk(chunk));
  }
  return sums;
}

}  // namespace ttrace
