#include "analysis/rename/rearrange.h"

#include "analysis/align/merged_copy.h"
#include "analysis/findings/wording.h"
#include "trace/file/record.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>

namespace ttrace {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t product(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// A factor of a tensor's dimensions.
struct Factor {
  std::string name;
  std::int64_t size = 1;
  std::int64_t stride = 1;  // between its indices
};

// The factors of `dims`, in their order, of a tensor of this shape.
std::vector<Factor> sized_factors(const DimsSpec& dims, const Shape& shape) {
  std::vector<Factor> factors;
  for (std::size_t i = 0; i < dims.dims.size(); ++i) {
    std::int64_t known = 1;  // no larger than it takes to see that it does not fit
    for (const DimFactor& factor : dims.dims[i]) {
      known *= std::min(factor.size.value_or(1), shape[i] / known + 1);
    }
    const bool open =
        std::ranges::any_of(dims.dims[i], [](const DimFactor& factor) { return !factor.size; });
    TTRACE_CHECK(open ? shape[i] % known == 0 : shape[i] == known,
                 UsageError,
                 fmt::format("its shape {} does not fit the dims \"{}\"; correct the dims",
                             shape_text(shape),
                             to_string(dims)));
    for (const DimFactor& factor : dims.dims[i]) {
      if (!factor.name.empty()) {
        factors.push_back({factor.name, factor.size.value_or(shape[i] / known)});
      }
    }
  }
  std::int64_t stride = 1;
  for (Factor& factor : factors | std::views::reverse) {
    factor.stride = std::exchange(stride, stride * factor.size);
  }
  return factors;
}

// Null if the tensor does not have it.
const Factor* find_factor(const std::vector<Factor>& factors, const std::string& name) {
  const auto found = std::ranges::find(factors, name, &Factor::name);
  return found == factors.end() ? nullptr : &*found;
}

// Copies elements so that dimension i of the result walks the source by `strides[i]`.
std::vector<std::byte> gathered(const MergeResult& source,
                                const Shape& shape,
                                const Shape& strides) {
  const std::size_t width = element_size(source.type);
  std::vector<std::byte> result(source.bytes.size());
  Shape index(shape.size(), 0);
  std::int64_t from = 0;
  for (std::size_t to = 0; to < result.size(); to += width) {
    std::memcpy(&result[to], &source.bytes[static_cast<std::size_t>(from) * width], width);
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      from += strides[dim];
      if (++index[dim] < shape[dim]) {
        break;
      }
      from -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
  }
  return result;
}

// The dimension of `to` that is the same factor as the sparse one of `from`.
std::optional<HeldRows> moved(const std::optional<HeldRows>& held,
                              const DimsSpec& from,
                              const DimsSpec& to) {
  if (!held) {
    return std::nullopt;
  }
  const auto& word = from.dims[held->dim];
  const auto dim = word.size() == 1 ? to.index_of(word.front().name) : std::nullopt;
  TTRACE_CHECK(dim,
               UsageError,
               fmt::format("a router sent its rows to several ranks, so the dims \"{}\" cannot "
                           "become \"{}\"; keep these rows a dimension of their own",
                           to_string(from),
                           to_string(to)));
  return HeldRows{*dim, held->rows};
}

Shape without(const Shape& shape, std::size_t dim) {
  Shape rest = shape;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(dim));
  return rest;
}

void require_dim(const MergeResult& tensor, std::size_t dim) {
  TTRACE_CHECK(
      dim < tensor.shape.size() && (!tensor.held || tensor.held->dim != dim),
      UsageError,
      fmt::format("its shape {} has no dimension {} along which parts could lie; correct the entry",
                  shape_text(tensor.shape),
                  dim));
}

void require_parts_of_one(std::span<const MergeResult> parts, std::size_t dim) {
  for (const MergeResult& part : parts) {
    require_dim(part, dim);
    TTRACE_CHECK(
        part.type == parts[0].type && part.shape.size() == parts[0].shape.size() &&
            without(part.shape, dim) == without(parts[0].shape, dim) && part.held == parts[0].held,
        UsageError,
        fmt::format("one part is {} in {}, but another is {} in {}; only dimension {} may differ",
                    shape_text(parts[0].shape),
                    name_of(parts[0].type),
                    shape_text(part.shape),
                    name_of(part.type),
                    dim));
  }
}

// The number that all parts have: what an optimizer keeps of a whole parameter, such as its
// learning rate.
MergeResult shared_number(std::span<const MergeResult> parts) {
  for (const MergeResult& part : parts) {
    TTRACE_CHECK(std::ranges::equal(part.bytes, parts[0].bytes),
                 UsageError,
                 "its parts have different numbers, but what they become has one");
  }
  return copy_of(parts[0]);
}

// Bytes of one index of dimension `dim`, and how often the dimension is walked through.
struct Blocks {
  std::size_t inner = 0;
  std::size_t outer = 0;
};

Blocks blocks_of(const MergeResult& tensor, std::size_t dim) {
  const std::span<const std::int64_t> shape = tensor.shape;
  return {element_size(tensor.type) * static_cast<std::size_t>(product(shape.subspan(dim + 1))),
          static_cast<std::size_t>(product(shape.first(dim)))};
}

}  // namespace

MergeResult rearranged(const MergeResult& tensor, const DimsSpec& from, const DimsSpec& to) {
  if (tensor.shape.empty()) {
    return copy_of(tensor);
  }
  const std::vector<Factor> factors = sized_factors(from, tensor.shape);
  MergeResult result;
  result.type = tensor.type;
  result.held = moved(tensor.held, from, to);
  result.shape = rearranged_shape(tensor.shape, from, to);
  Shape order;    // factors as they follow each other in the result
  Shape strides;  // in the source
  for (const auto& word : to.dims) {
    for (const DimFactor& factor : word) {
      if (const Factor* const found = find_factor(factors, factor.name)) {
        order.push_back(found->size);
        strides.push_back(found->stride);
      }
    }
  }
  result.storage = gathered(tensor, order, strides);
  result.bytes = result.storage;
  return result;
}

Shape rearranged_shape(const Shape& shape, const DimsSpec& from, const DimsSpec& to) {
  if (shape.empty()) {
    return shape;
  }
  const std::vector<Factor> factors = sized_factors(from, shape);
  Shape result;
  for (const auto& word : to.dims) {
    std::int64_t extent = 1;
    for (const DimFactor& factor : word) {
      const Factor* const found = find_factor(factors, factor.name);
      extent *= found == nullptr ? 1 : found->size;
    }
    result.push_back(extent);
  }
  return result;
}

std::optional<std::vector<std::size_t>> permutation(const DimsSpec& from, const DimsSpec& to) {
  std::vector<std::size_t> places;
  for (const auto& word : to.dims) {
    const auto place = word.size() == 1 ? from.index_of(word.front().name) : std::nullopt;
    if (!place) {
      return std::nullopt;
    }
    places.push_back(*place);
  }
  return places.size() == from.dims.size() ? std::optional(places) : std::nullopt;
}

std::vector<PartPiece> pieces_of(std::span<const std::int64_t> part_sizes, const Fusion& fusion) {
  TTRACE_CHECK(
      part_sizes.size() == fusion.ratio.size(),
      InternalError,
      fmt::format(
          "there are {} parts for a ratio of {} numbers", part_sizes.size(), fusion.ratio.size()));
  for (std::size_t i = 0; i < part_sizes.size(); ++i) {
    TTRACE_CHECK(
        part_sizes[i] * fusion.ratio[0] == part_sizes[0] * fusion.ratio[i],
        UsageError,
        fmt::format("its parts have the sizes {}, but their ratio should be {}; correct ratio",
                    fmt::join(part_sizes, ", "),
                    fmt::join(fusion.ratio, " : ")));
    TTRACE_CHECK(part_sizes[i] % fusion.groups == 0,
                 UsageError,
                 fmt::format("a part of size {} cannot be cut into {} groups; correct groups",
                             part_sizes[i],
                             fusion.groups));
  }
  std::vector<PartPiece> pieces;
  for (std::int64_t group = 0; group < fusion.groups; ++group) {
    for (std::size_t i = 0; i < part_sizes.size(); ++i) {
      const std::int64_t extent = part_sizes[i] / fusion.groups;
      pieces.push_back({i, group * extent, extent});
    }
  }
  return pieces;
}

std::vector<std::int64_t> part_sizes(std::int64_t size, const Fusion& fusion) {
  const std::int64_t whole =
      fusion.groups * std::accumulate(fusion.ratio.begin(), fusion.ratio.end(), std::int64_t{0});
  TTRACE_CHECK(size % whole == 0,
               UsageError,
               fmt::format("a dimension of {} cannot be cut into {} of parts in the ratio {}; "
                           "correct groups or ratio",
                           size,
                           counted(fusion.groups, "group"),
                           fmt::join(fusion.ratio, " : ")));
  std::vector<std::int64_t> sizes;
  for (const std::int64_t share : fusion.ratio) {
    sizes.push_back(size / whole * fusion.groups * share);
  }
  return sizes;
}

MergeResult fused(std::span<const MergeResult> parts, const Fusion& fusion, std::size_t dim) {
  if (parts[0].shape.empty()) {
    return shared_number(parts);
  }
  require_parts_of_one(parts, dim);
  std::vector<std::int64_t> sizes;
  for (const MergeResult& part : parts) {
    sizes.push_back(part.shape[dim]);
  }
  const std::vector<PartPiece> pieces = pieces_of(sizes, fusion);
  MergeResult result;
  result.type = parts[0].type;
  result.shape = parts[0].shape;
  result.shape[dim] = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  result.held = parts[0].held;
  const Blocks blocks = blocks_of(result, dim);
  for (std::size_t outer = 0; outer < blocks.outer; ++outer) {
    for (const PartPiece& piece : pieces) {
      const auto first = outer * static_cast<std::size_t>(sizes[piece.part]) +
                         static_cast<std::size_t>(piece.in_part);
      const auto bytes = parts[piece.part].bytes.subspan(
          first * blocks.inner, static_cast<std::size_t>(piece.extent) * blocks.inner);
      result.storage.insert(result.storage.end(), bytes.begin(), bytes.end());
    }
  }
  result.bytes = result.storage;
  return result;
}

std::vector<MergeResult> split(const MergeResult& tensor, const Fusion& fusion, std::size_t dim) {
  if (tensor.shape.empty()) {
    std::vector<MergeResult> parts;
    std::ranges::generate_n(
        std::back_inserter(parts), std::ssize(fusion.ratio), [&] { return copy_of(tensor); });
    return parts;
  }
  require_dim(tensor, dim);
  const std::vector<std::int64_t> sizes = part_sizes(tensor.shape[dim], fusion);
  const std::vector<PartPiece> pieces = pieces_of(sizes, fusion);
  std::vector<MergeResult> parts(sizes.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].type = tensor.type;
    parts[i].shape = tensor.shape;
    parts[i].shape[dim] = sizes[i];
    parts[i].held = tensor.held;
  }
  const Blocks blocks = blocks_of(tensor, dim);
  std::size_t first = 0;
  for (std::size_t outer = 0; outer < blocks.outer; ++outer) {
    for (const PartPiece& piece : pieces) {
      const std::size_t count = static_cast<std::size_t>(piece.extent) * blocks.inner;
      const auto bytes = tensor.bytes.subspan(first, count);
      auto& storage = parts[piece.part].storage;
      storage.insert(storage.end(), bytes.begin(), bytes.end());
      first += count;
    }
  }
  for (MergeResult& part : parts) {
    part.bytes = part.storage;
  }
  return parts;
}

}  // namespace ttrace
