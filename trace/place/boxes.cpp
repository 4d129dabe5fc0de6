#include "trace/place/boxes.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Local indices [begin, end) of one dimension.
DimPlacement cut(const DimPlacement& dim, std::int64_t begin, std::int64_t end) {
  DimPlacement result{dim.local_size, dim.logical_size, {}, dim.sparse};
  auto segment = std::upper_bound(
      dim.segments.begin(), dim.segments.end(), begin, [](std::int64_t at, const Segment& s) {
        return at < s.local + s.extent;
      });
  for (; segment != dim.segments.end() && segment->local < end; ++segment) {
    const std::int64_t first = std::max(begin, segment->local);
    const std::int64_t last = std::min(end, segment->local + segment->extent);
    result.segments.push_back({first, segment->logical + first - segment->local, last - first});
  }
  return result;
}

class Splitter {
 public:
  explicit Splitter(std::span<const DimPlacement> dims) : dims_(dims) {}

  // Elements [begin, end) of what lies within the indices fixed so far, dimensions `dim` and on.
  void split(std::size_t dim, std::int64_t begin, std::int64_t end) {
    if (begin == end) {
      return;
    }
    if (dim == dims_.size()) {
      add(dim, 0, 0);
      return;
    }
    const std::int64_t row = local_elements(dims_.subspan(dim + 1));
    const std::int64_t first = begin / row;
    const std::int64_t last = end / row;
    if (first == last) {
      split_row(dim, first, begin % row, end % row);
      return;
    }
    const std::int64_t whole = first + (begin % row == 0 ? 0 : 1);
    if (whole > first) {
      split_row(dim, first, begin % row, row);
    }
    if (whole < last) {
      add(dim, whole, last);
    }
    split_row(dim, last, 0, end % row);
  }

  std::vector<std::vector<DimPlacement>> take() { return std::move(boxes_); }

 private:
  void split_row(std::size_t dim, std::int64_t index, std::int64_t begin, std::int64_t end) {
    fixed_.push_back(index);
    split(dim + 1, begin, end);
    fixed_.pop_back();
  }

  // Indices [begin, end) of dimension `dim`, all of the later ones.
  void add(std::size_t dim, std::int64_t begin, std::int64_t end) {
    std::vector<DimPlacement> box;
    for (std::size_t i = 0; i < dims_.size(); ++i) {
      box.push_back(i < dim    ? cut(dims_[i], fixed_[i], fixed_[i] + 1)
                    : i == dim ? cut(dims_[i], begin, end)
                               : dims_[i]);
      if (box.back().segments.empty()) {
        return;
      }
    }
    boxes_.push_back(std::move(box));
  }

  std::span<const DimPlacement> dims_;
  std::vector<std::int64_t> fixed_;  // indices of the leading dimensions
  std::vector<std::vector<DimPlacement>> boxes_;
};

std::vector<Rectangle> cross_product(std::span<const DimPlacement> dims) {
  // One box without dimensions is the scalar's; each dimension splits every box by its segments.
  std::vector<Rectangle> boxes(1);
  for (const DimPlacement& dim : dims) {
    std::vector<Rectangle> finer;
    for (const Rectangle& box : boxes) {
      for (const Segment& segment : dim.segments) {
        Rectangle& piece = finer.emplace_back(box);
        piece.local_start.push_back(segment.local);
        piece.logical_start.push_back(segment.logical);
        piece.extent.push_back(segment.extent);
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

}  // namespace

std::vector<std::vector<DimPlacement>> boxes_of(std::span<const DimPlacement> dims,
                                                FlatRange range) {
  Splitter splitter(dims);
  splitter.split(0, range.first, range.first + range.count);
  return splitter.take();
}

std::int64_t local_elements(std::span<const DimPlacement> dims) {
  std::int64_t count = 1;
  for (const DimPlacement& dim : dims) {
    count *= dim.local_size;
  }
  return count;
}

std::vector<Rectangle> rectangles(const Placement& placement) {
  if (!placement.flat) {
    return cross_product(placement.dims);
  }
  std::vector<Rectangle> all;
  for (const std::vector<DimPlacement>& box : boxes_of(placement.dims, *placement.flat)) {
    const std::vector<Rectangle> parts = cross_product(box);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace ttrace
