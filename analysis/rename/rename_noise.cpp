#include "analysis/rename/rename_noise.h"

#include "analysis/rename/rearrange.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

using Shape = std::vector<std::int64_t>;

// Numbers as a tensor of doubles, so that what moves tensors moves them too.
MergeResult as_tensor(std::span<const double> numbers, Shape shape) {
  MergeResult tensor;
  tensor.type = ElementType::kF64;
  tensor.shape = std::move(shape);
  tensor.storage.resize(numbers.size_bytes());
  std::memcpy(tensor.storage.data(), numbers.data(), numbers.size_bytes());
  tensor.bytes = tensor.storage;
  return tensor;
}

void append(const MergeResult& tensor, std::vector<double>& numbers) {
  const std::size_t old = numbers.size();
  numbers.resize(old + tensor.bytes.size() / sizeof(double));
  std::memcpy(numbers.data() + old, tensor.bytes.data(), tensor.bytes.size());
}

Shape leading(const Shape& shape) {
  return {shape.begin(), shape.end() - 1};
}

// The indices that the slices of dimension `dim` have, which may be kRows.
Shape indices_of(const Shape& shape, std::size_t dim) {
  return dim == Slicing::kRows ? leading(shape) : Shape{shape[dim]};
}

// The noise of a tensor's slices of one dimension; nothing if it was not measured.
std::optional<MergeResult> slices_along(const ShapedNoise& noise, std::size_t dim) {
  Shape shape = indices_of(noise.shape, dim);
  if (noise.row.sum_squared == 0.0) {
    const auto count = element_count(shape);
    return as_tensor(std::vector<double>(static_cast<std::size_t>(count), 0.0), std::move(shape));
  }
  for (const Slicing& slicing : slicings_of(noise.shape)) {
    const auto count = static_cast<std::size_t>(slicing.count);
    if (slicing.dim == dim && slicing.first + count <= noise.row.slices.size()) {
      return as_tensor(std::span(noise.row.slices).subspan(slicing.first, count), std::move(shape));
    }
  }
  return std::nullopt;
}

// The slices of a tensor of this shape, one slicing after the other as `make` gives them; none
// where it gives none for one of them.
template <class Make>
std::vector<double> all_slices(const Shape& shape, double sum_squared, Make&& make) {
  std::vector<double> slices;
  if (sum_squared == 0.0) {
    return slices;
  }
  for (const Slicing& slicing : slicings_of(shape)) {
    const std::optional<MergeResult> some = make(slicing.dim);
    if (!some) {
      return {};
    }
    append(*some, slices);
  }
  return slices;
}

DimsSpec leading(const DimsSpec& dims) {
  DimsSpec result = dims;
  result.dims.pop_back();
  return result;
}

std::optional<MergeResult> sum(std::span<const ShapedNoise> parts, std::size_t dim) {
  std::vector<double> total;
  Shape shape;
  for (const ShapedNoise& part : parts) {
    const auto some = slices_along(part, dim);
    if (!some) {
      return std::nullopt;
    }
    std::vector<double> numbers;
    append(*some, numbers);
    total.resize(numbers.size(), 0.0);
    std::transform(total.begin(), total.end(), numbers.begin(), total.begin(), std::plus<>());
    shape = some->shape;
  }
  return as_tensor(total, std::move(shape));
}

}  // namespace

ShapedNoise rearranged_noise(const ShapedNoise& noise,
                             const DimsSpec& from,
                             const DimsSpec& to,
                             Shape shape) {
  ShapedNoise result{noise.row, std::move(shape)};
  if (noise.shape.empty()) {
    return result;
  }
  result.row.slices.clear();
  const auto places = permutation(from, to);
  if (!places) {
    return result;
  }
  const std::size_t last = noise.shape.size() - 1;
  result.row.slices = all_slices(result.shape, noise.row.sum_squared, [&](std::size_t dim) {
    if (dim != Slicing::kRows) {
      return slices_along(noise, (*places)[dim]);
    }
    const auto rows = places->back() == last ? slices_along(noise, dim) : std::nullopt;
    return rows ? std::optional(rearranged(*rows, leading(from), leading(to))) : std::nullopt;
  });
  return result;
}

ShapedNoise fused_noise(std::span<const ShapedNoise> parts, const Fusion& fusion, std::size_t dim) {
  ShapedNoise result = parts[0];
  if (result.shape.empty()) {
    return result;  // a number that all parts share
  }
  result.shape[dim] = 0;
  result.row = {};
  result.row.along_reference = 0.0;
  result.row.covered = true;
  for (const ShapedNoise& part : parts) {
    if (result.row.covered && part.row.covered) {
      *result.row.covered = *result.row.covered && *part.row.covered;
    } else {
      result.row.covered.reset();
    }
    result.shape[dim] += part.shape[dim];
    result.row.sum_squared += part.row.sum_squared;
    result.row.max_abs = std::max(result.row.max_abs, part.row.max_abs);
    result.row.nonfinite += part.row.nonfinite;
    if (result.row.along_reference && part.row.along_reference) {
      *result.row.along_reference += *part.row.along_reference;
    } else {
      result.row.along_reference.reset();
    }
  }
  const std::size_t rank = result.shape.size();
  result.row.slices = all_slices(
      result.shape, result.row.sum_squared, [&](std::size_t slicing) -> std::optional<MergeResult> {
        const bool along_parts = slicing == dim || (slicing == Slicing::kRows && dim + 1 < rank);
        if (!along_parts) {
          return sum(parts, slicing);
        }
        std::vector<MergeResult> slices;
        for (const ShapedNoise& part : parts) {
          auto some = slices_along(part, slicing);
          if (!some) {
            return std::nullopt;
          }
          slices.push_back(std::move(*some));
        }
        return fused(slices, fusion, slicing == dim ? 0 : dim);
      });
  return result;
}

std::optional<std::vector<ShapedNoise>> split_noise(const ShapedNoise& tensor,
                                                    const Fusion& fusion,
                                                    std::size_t dim) {
  if (tensor.shape.empty()) {
    return std::vector<ShapedNoise>(fusion.ratio.size(), tensor);  // a number that all parts share
  }
  const auto along = slices_along(tensor, dim);
  if (!along) {
    return std::nullopt;
  }
  std::vector<ShapedNoise> result;
  for (const MergeResult& slices : split(*along, fusion, 0)) {
    std::vector<double> numbers;
    append(slices, numbers);
    ShapedNoise part{tensor.row, tensor.shape};
    part.shape[dim] = slices.shape[0];
    part.row.slices.clear();
    part.row.sum_squared = std::accumulate(numbers.begin(), numbers.end(), 0.0);
    if (part.row.sum_squared > 0.0) {
      part.row.along_reference.reset();
    } else {
      part.row.max_abs = 0.0;
      part.row.along_reference = 0.0;
    }
    result.push_back(std::move(part));
  }
  return result;
}

}  // namespace ttrace
