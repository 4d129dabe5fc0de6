#include "trace/samples/padding.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

IndexSet non_empty(const Interval& interval) {
  return interval.begin < interval.end ? IndexSet{interval} : IndexSet{};
}

IndexSet without(std::int64_t size, const Interval& shared) {
  return shared.begin < shared.end ? difference({{0, size}}, {shared}) : IndexSet{{0, size}};
}

bool contains(const IndexSet& set, std::int64_t index) {
  return std::ranges::any_of(set, [index](const Interval& interval) {
    return interval.begin <= index && index < interval.end;
  });
}

// Those of a dimension's indices, under their own numbers.
DimPlacement restricted(std::int64_t size, const IndexSet& indices) {
  DimPlacement dim{size, size, {}};
  for (const Interval& interval : indices) {
    dim.segments.push_back({interval.begin, interval.begin, interval.end - interval.begin});
  }
  return dim;
}

// What lies at [begin, end), `shift` indices further on in a dimension of `size`.
DimPlacement cut(const DimPlacement& dim,
                 const IndexSet& kept,
                 std::int64_t shift,
                 std::int64_t size) {
  DimPlacement result{dim.local_size, size, {}, dim.sparse};
  for (const Segment& segment : dim.segments) {
    for (const Interval& both :
         intersection({{segment.logical, segment.logical + segment.extent}}, kept)) {
      result.segments.push_back({segment.local + both.begin - segment.logical,
                                 both.begin + shift,
                                 both.end - both.begin});
    }
  }
  return result;
}

}  // namespace

std::optional<PaddedTensor> PaddedTensor::of(const Placement& placement,
                                             const SampleDim& samples,
                                             std::span<const std::int64_t> shape,
                                             const SampleDim& of_reference,
                                             PaddedAt padded) {
  if (samples.dim != of_reference.dim || placement.dims.size() != shape.size()) {
    return std::nullopt;
  }
  PaddedTensor result;
  result.own_ = samples;
  result.of_reference_ = of_reference;
  result.shape_.assign(shape.begin(), shape.end());
  result.padded_ = padded;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Widths sizes{placement.dims[dim].logical_size, shape[dim]};
    if (dim != samples.dim) {
      if (sizes.candidate != sizes.reference) {
        result.axes_.push_back({false, dim, 1, sizes, sizes.reference});
      }
      continue;
    }
    const Widths each{sizes.candidate / samples.count, sizes.reference / of_reference.count};
    const Widths blocks{each.candidate / samples.rows, each.reference / of_reference.rows};
    if (each.candidate == each.reference && samples.rows == of_reference.rows) {
      continue;
    }
    if (samples.rows == of_reference.rows) {
      result.axes_.push_back({true, dim, samples.rows, blocks, blocks.reference});
    } else if (blocks.candidate == blocks.reference) {
      result.axes_.push_back({true, dim, 1, {samples.rows, of_reference.rows}, of_reference.rows});
    } else {
      return std::nullopt;
    }
  }
  const bool has_positions = std::ranges::all_of(result.axes_, [](const Axis& axis) {
    return axis.widths.candidate > 0 && axis.widths.reference > 0;
  });
  return has_positions ? std::optional(std::move(result)) : std::nullopt;
}

std::set<Widths> PaddedTensor::widths() const {
  std::set<Widths> all;
  for (const Axis& axis : axes_) {
    all.insert(axis.widths);
  }
  return all;
}

bool PaddedTensor::has_rest() const {
  return std::ranges::any_of(axes_,
                             [this](const Axis& axis) { return !rest_of_reference(axis).empty(); });
}

std::int64_t PaddedTensor::shift(const Axis& axis) const {
  return padded_ == PaddedAt::kEnd ? 0 : axis.widths.reference - axis.widths.candidate;
}

Interval PaddedTensor::shared(const Axis& axis) const {
  const std::int64_t both = std::min(axis.widths.candidate, axis.widths.reference);
  const std::int64_t length = std::min(both, axis.length);
  return padded_ == PaddedAt::kEnd
             ? Interval{0, length}
             : Interval{axis.widths.reference - length, axis.widths.reference};
}

PaddedTensor PaddedTensor::shortened(const Lengths& lengths) const {
  PaddedTensor result = *this;
  for (Axis& axis : result.axes_) {
    const auto found = lengths.find(axis.widths);
    axis.length = found == lengths.end() ? axis.length : found->second;
  }
  return result;
}

IndexSet PaddedTensor::rest_of_reference(const Axis& axis) const {
  return without(axis.widths.reference, shared(axis));
}

std::vector<DimPlacement> PaddedTensor::common(const Placement& placement) const {
  std::vector<DimPlacement> dims = placement.dims;
  for (const Axis& axis : axes_) {
    if (!axis.is_of_samples) {
      const Interval both = shared(axis);
      const std::int64_t by = shift(axis);
      dims[axis.dim] =
          cut(dims[axis.dim], {{both.begin - by, both.end - by}}, by, axis.widths.reference);
    }
  }
  return dims;
}

std::int64_t PaddedTensor::common_within(std::int64_t index) const {
  for (const Axis& axis : axes_) {
    if (axis.is_of_samples) {
      const std::int64_t position = index / axis.inner % axis.widths.candidate + shift(axis);
      if (!contains({shared(axis)}, position)) {
        return kPadding;
      }
      const std::int64_t block = index / (axis.inner * axis.widths.candidate);
      return (block * axis.widths.reference + position) * axis.inner + index % axis.inner;
    }
  }
  return index;
}

std::vector<DimPlacement> PaddedTensor::own_rest(const Placement& placement,
                                                 const RowIndices& row) const {
  std::vector<DimPlacement> dims = placement.dims;
  const Axis& axis = axes_.front();
  std::vector<Interval> samples;
  for (std::size_t i = 0; i < row.local.size(); ++i) {
    if (!axis.is_of_samples || common_within(row.within[i]) == kPadding) {
      samples.push_back({row.local[i], row.local[i] + 1});
    }
  }
  dims[own_.dim] = restricted(dims[own_.dim].local_size, normalised(std::move(samples)));
  if (!axis.is_of_samples) {
    const Interval both = shared(axis);
    const std::int64_t by = shift(axis);
    const std::int64_t width = axis.widths.candidate;
    dims[axis.dim] =
        cut(dims[axis.dim], without(width, {both.begin - by, both.end - by}), 0, width);
  }
  return dims;
}

std::vector<Placement> PaddedTensor::rests_of_reference(
    const std::set<std::int64_t>& samples) const {
  std::vector<Placement> rests;
  for (std::size_t rest = 0; rest < axes_.size(); ++rest) {
    if (rest_of_reference(axes_[rest]).empty()) {
      continue;
    }
    Placement placement = whole(shape_);
    IndexSet positions = {
        {0, shape_[own_.dim]}};  // of each sample, where they are in its dimension
    const Axis* of_samples = nullptr;
    for (std::size_t i = 0; i <= rest; ++i) {
      const Axis& axis = axes_[i];
      const IndexSet kept = i == rest ? rest_of_reference(axis) : non_empty(shared(axis));
      if (axis.is_of_samples) {
        of_samples = &axis;
        positions = kept;
      } else {
        placement.dims[axis.dim] = restricted(axis.widths.reference, kept);
      }
    }
    std::vector<Interval> rows;
    const std::int64_t per_sample = shape_[own_.dim] / of_reference_.count;
    for (const std::int64_t sample : samples) {
      for (std::int64_t within = 0; within < per_sample; ++within) {
        const std::int64_t position =
            of_samples == nullptr ? 0 : within / of_samples->inner % of_samples->widths.reference;
        if (contains(positions, position)) {
          const std::int64_t row = logical_index(of_reference_, sample, within);
          rows.push_back({row, row + 1});
        }
      }
    }
    placement.dims[own_.dim] = restricted(shape_[own_.dim], normalised(std::move(rows)));
    rests.push_back(std::move(placement));
  }
  return rests;
}

}  // namespace ttrace
