// Computes a placement from dims and a local shape.
#include "trace/base/index_set.h"
#include "trace/place/addends.h"
#include "trace/place/boxes.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Logical indices in the order in which a rank holds them, which need not be ascending.
using Ranges = std::vector<Interval>;

// Appends what lies at positions [begin, end) of the list.
void append_positions(const Ranges& from, std::int64_t begin, std::int64_t end, Ranges& to) {
  std::int64_t position = 0;
  for (const Interval& range : from) {
    const std::int64_t first = std::max(begin, position);
    const std::int64_t past = position + range.end - range.begin;
    const std::int64_t last = std::min(end, past);
    if (first < last) {
      to.push_back({range.begin + first - position, range.begin + last - position});
    }
    position = past;
  }
}

Ranges cut(const Ranges& ranges, Sharding sharding, std::int64_t size, std::int64_t coordinate) {
  const bool zigzag = sharding == Sharding::kZigzag;
  const std::int64_t chunks = zigzag ? 2 * size : size;
  const std::int64_t length = size_of(ranges);
  const std::int64_t chunk = length / chunks + (length % chunks == 0 ? 0 : 1);
  Ranges result;
  append_positions(ranges, coordinate * chunk, (coordinate + 1) * chunk, result);
  if (zigzag) {
    const std::int64_t mirrored = chunks - 1 - coordinate;
    append_positions(ranges, mirrored * chunk, (mirrored + 1) * chunk, result);
  }
  return result;
}

// Appends, growing the last segment where the new one continues it.
void append_segment(Segment next, std::vector<Segment>& segments) {
  if (next.extent <= 0) {
    return;
  }
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.local + last.extent == next.local && last.logical + last.extent == next.logical) {
      last.extent += next.extent;
      return;
    }
  }
  segments.push_back(next);
}

// No tensor is larger; larger products are mistakes in a size.
constexpr std::int64_t kMostElements = std::int64_t{1} << 60;
// The largest number of segments of a dimension; every record stores and prints them.
constexpr std::int64_t kMostSegments = std::int64_t{1} << 16;

// Whether the result of fuse() has few enough segments.
bool can_fuse(const DimPlacement& slow, const DimPlacement& fast) {
  std::int64_t elements = 0;
  for (const Segment& outer : slow.segments) {
    elements += outer.extent;
  }
  const auto pieces = static_cast<std::int64_t>(fast.segments.size());
  return pieces == 0 || elements <= kMostSegments / pieces;
}

// The dimension whose slow factor is placed as `slow` and whose fast one as `fast`.
DimPlacement fuse(const DimPlacement& slow, const DimPlacement& fast) {
  DimPlacement fused{slow.local_size * fast.local_size, slow.logical_size * fast.logical_size, {}};
  if (fast.segments.empty()) {
    return fused;
  }
  const bool fast_is_whole = is_identity(fast);
  for (const Segment& outer : slow.segments) {
    if (fast_is_whole) {
      append_segment({outer.local * fast.local_size,
                      outer.logical * fast.local_size,
                      outer.extent * fast.local_size},
                     fused.segments);
      continue;
    }
    for (std::int64_t i = 0; i < outer.extent; ++i) {
      for (const Segment& inner : fast.segments) {
        append_segment({(outer.local + i) * fast.local_size + inner.local,
                        (outer.logical + i) * fast.logical_size + inner.logical,
                        inner.extent},
                       fused.segments);
      }
    }
  }
  return fused;
}

// The name at the end of a chain of followed axes.
std::string_view leader_of(std::string_view name, const Layout& layout) {
  for (std::size_t step = 0; step < layout.axes.size(); ++step) {
    const auto axis = std::find_if(layout.axes.begin(),
                                   layout.axes.end(),
                                   [&](const Axis& candidate) { return candidate.name == name; });
    if (axis == layout.axes.end() || axis->follows.empty()) {
      break;
    }
    name = axis->follows;
  }
  return name;
}

// Places one dims specification on one rank.
class Placer {
 public:
  Placer(const DimsSpec& dims,
         std::span<const std::int64_t> local_shape,
         const Layout& layout,
         const Sizes& sizes)
      : dims_(dims), local_shape_(local_shape), layout_(layout), sizes_(sizes) {}

  Placement place() {
    TTRACE_CHECK(dims_.dims.size() == local_shape_.size(),
                 UsageError,
                 "dims \"",
                 to_string(dims_),
                 "\" describe ",
                 dims_.dims.size(),
                 " dimensions, but the tensor's local shape is ",
                 shape_text(),
                 "; write one word per dimension");
    check_axes_independent();
    Placement placement;
    for (current_ = 0; current_ < dims_.dims.size(); ++current_) {
      placement.dims.push_back(place_dimension());
    }
    add_partial(placement);
    return placement;
  }

 private:
  // Uses of axes that the run has; the others change nothing.
  [[nodiscard]] std::vector<const AxisUse*> cutting(const DimFactor& factor) const {
    std::vector<const AxisUse*> uses;
    for (const AxisUse& use : factor.axes) {
      if (use.sharding != Sharding::kPartial && layout_.size(use.axis) > 1) {
        uses.push_back(&use);
      }
    }
    return uses;
  }

  [[nodiscard]] std::int64_t ranks_cutting(const DimFactor& factor) const {
    std::int64_t product = 1;
    for (const AxisUse* use : cutting(factor)) {
      product = multiply(product, layout_.size(use->axis));
    }
    return product;
  }

  // The product of two sizes from an annotation or a shape, which are not negative.
  [[nodiscard]] std::int64_t multiply(std::int64_t left, std::int64_t right) const {
    std::int64_t product = 0;
    TTRACE_CHECK(
        !__builtin_mul_overflow(left, right, &product) && product <= kMostElements,
        UsageError,
        where(),
        " would have ",
        left,
        " times ",
        right,
        " elements, more than a tensor can have; correct a size in the word or under sizes");
    return product;
  }

  [[nodiscard]] std::optional<std::int64_t> given_size(const DimFactor& factor) const {
    if (factor.size) {
      return multiply(*factor.size, 1);
    }
    const auto found = sizes_.find(factor.name);
    return found == sizes_.end() ? std::nullopt : std::optional(multiply(found->second, 1));
  }

  // The part of [0, size) that this rank holds, cut by one axis after the other.
  [[nodiscard]] Ranges share_of(std::int64_t size, const DimFactor& factor) const {
    Ranges ranges = {{0, size}};
    for (const AxisUse* use : cutting(factor)) {
      ranges = cut(ranges, use->sharding, layout_.size(use->axis), layout_.coordinate(use->axis));
    }
    return ranges;
  }

  // Shards are either uneven, their sizes following from the logical size by the ceil rule, or all
  // of one size, which together may exceed the logical size; then the rest is padding.
  DimPlacement place_factor(const DimFactor& factor, std::int64_t local, std::int64_t logical) {
    Ranges ranges = share_of(logical, factor);
    const std::int64_t expected = size_of(ranges);
    if (expected != local) {
      const std::int64_t padded = multiply(local, ranks_cutting(factor));
      ranges = share_of(padded, factor);
      if (padded < logical || size_of(ranges) != local) {
        fail_size(factor, local, logical, expected);
      }
    }
    DimPlacement placed{local, logical, {}};
    std::int64_t position = 0;
    for (const Interval& range : ranges) {
      append_segment({position, range.begin, std::min(range.end, logical) - range.begin},
                     placed.segments);
      position += range.end - range.begin;
    }
    return placed;
  }

  // The factor whose local size is what the others leave: the one of unknown logical size, else the
  // last that is cut (only a cut factor can be padded), else the last.
  [[nodiscard]] std::size_t free_factor(const std::vector<DimFactor>& factors) const {
    std::optional<std::size_t> unknown;
    std::size_t last_cut = factors.size() - 1;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (!given_size(factors[i])) {
        TTRACE_CHECK(!unknown,
                     UsageError,
                     where(),
                     " has two factors of unknown size, \"",
                     to_string(factors[*unknown]),
                     "\" and \"",
                     to_string(factors[i]),
                     "\"; give one of them a size in the word (name=8) or under sizes");
        unknown = i;
      }
      if (!cutting(factors[i]).empty()) {
        last_cut = i;
      }
    }
    return unknown.value_or(last_cut);
  }

  DimPlacement place_dimension() {
    const std::vector<DimFactor>& factors = dims_.dims[current_];
    const std::int64_t local = local_shape_[current_];
    const std::size_t free = free_factor(factors);
    std::vector<std::int64_t> locals(factors.size());
    std::int64_t others = 1;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (i != free) {
        locals[i] = size_of(share_of(*given_size(factors[i]), factors[i]));
        others = multiply(others, locals[i]);
      }
    }
    // A rank that holds nothing of one factor holds nothing of the dimension.
    TTRACE_CHECK(others == 0 ? local == 0 : local % others == 0,
                 UsageError,
                 where(),
                 " has local size ",
                 local,
                 ", which is not a multiple of ",
                 others,
                 ", the product of its factors of known size",
                 axes_text(factors),
                 "; correct a size in the word or under sizes");
    const std::int64_t rest = others == 0 ? 0 : local / others;
    const std::optional<std::int64_t> given = given_size(factors[free]);
    locals[free] = others == 0 && given ? size_of(share_of(*given, factors[free])) : rest;

    DimPlacement placed{1, 1, {{0, 0, 1}}};
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const std::int64_t logical =
          given_size(factors[i]).value_or(multiply(locals[i], ranks_cutting(factors[i])));
      placed = join(placed, place_factor(factors[i], locals[i], logical));
    }
    return placed;
  }

  [[nodiscard]] DimPlacement join(const DimPlacement& slow, const DimPlacement& fast) const {
    static_cast<void>(multiply(slow.local_size, fast.local_size));
    static_cast<void>(multiply(slow.logical_size, fast.logical_size));
    TTRACE_CHECK(is_identity(fast) || can_fuse(slow, fast),
                 UsageError,
                 where(),
                 " falls into more than ",
                 kMostSegments,
                 " pieces, because a fast factor is cut within each index of a slow one; cut the "
                 "slow factor, or correct a size in the word or under sizes");
    return fuse(slow, fast);
  }

  // Uses of axes that the run has, over the whole tensor.
  [[nodiscard]] std::vector<const AxisUse*> active_uses() const {
    std::vector<const AxisUse*> uses;
    const auto add = [&](const AxisUse& use) {
      if (layout_.size(use.axis) > 1) {
        uses.push_back(&use);
      }
    };
    for (const std::vector<DimFactor>& factors : dims_.dims) {
      for (const DimFactor& factor : factors) {
        std::ranges::for_each(factor.axes, add);
      }
    }
    std::ranges::for_each(dims_.summed, add);
    return uses;
  }

  // An axis and one that follows it have one coordinate: a rank that holds part 1 of one dimension
  // would never hold part 0 of the other.
  void check_axes_independent() const {
    std::map<std::string_view, std::string_view> used_as;
    for (const AxisUse* use : active_uses()) {
      const auto [other, first] = used_as.emplace(leader_of(use->axis, layout_), use->axis);
      TTRACE_CHECK(first,
                   UsageError,
                   "dims \"",
                   to_string(dims_),
                   "\" use the axes \"",
                   other->second,
                   "\" and \"",
                   use->axis,
                   "\", which always have the same coordinate (\"",
                   other->first,
                   "\" determines it): together they would leave parts of the tensor on no rank; "
                   "keep one of the two");
    }
  }

  void add_partial(Placement& placement) const {
    for (const AxisUse* use : active_uses()) {
      if (use->sharding == Sharding::kPartial) {
        sum_over(placement, layout_, use->axis);
      }
    }
  }

  [[noreturn]] void fail_size(const DimFactor& factor,
                              std::int64_t local,
                              std::int64_t logical,
                              std::int64_t expected) const {
    std::string uses;
    for (const AxisUse* use : cutting(factor)) {
      uses += (uses.empty() ? " over " : ", ") + use->axis + " (size " +
              std::to_string(layout_.size(use->axis)) + ", coordinate " +
              std::to_string(layout_.coordinate(use->axis)) + ")";
    }
    TTRACE_THROW(UsageError,
                 where(),
                 ": \"",
                 to_string(factor),
                 "\" has local size ",
                 local,
                 ", but this rank holds ",
                 expected,
                 " of its logical size ",
                 logical,
                 uses,
                 "; more is allowed only if every rank's part is padded to one size; correct the "
                 "size in the word or under sizes, or the axes");
  }

  [[nodiscard]] std::string axes_text(const std::vector<DimFactor>& factors) const {
    std::string text;
    for (const DimFactor& factor : factors) {
      for (const AxisUse* use : cutting(factor)) {
        text += (text.empty() ? " (" : ", ") + use->axis + " has size " +
                std::to_string(layout_.size(use->axis));
      }
    }
    return text + (text.empty() ? "" : ")");
  }

  [[nodiscard]] std::string where() const {
    return "dims \"" + to_string(dims_) + "\": dimension " + std::to_string(current_) + " of " +
           shape_text();
  }

  [[nodiscard]] std::string shape_text() const {
    std::string text;
    for (const std::int64_t size : local_shape_) {
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
    return "[" + text + "]";
  }

  const DimsSpec& dims_;
  std::span<const std::int64_t> local_shape_;
  const Layout& layout_;
  const Sizes& sizes_;
  std::size_t current_ = 0;  // dimension being placed, for messages
};

}  // namespace

Placement place(const DimsSpec& dims,
                std::span<const std::int64_t> local_shape,
                const Layout& layout,
                const Sizes& sizes) {
  return Placer(dims, local_shape, layout, sizes).place();
}

}  // namespace ttrace
