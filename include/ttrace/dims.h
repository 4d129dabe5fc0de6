// The `dims` strings in which people write how a tensor is cut: one word for each dimension, with
// the axes that cut it in brackets.
//
//   const ttrace::DimsSpec dims = ttrace::parse_dims("s[cp:zigzag,sp] b h[tp]");
//   const ttrace::Placement placement = ttrace::place(dims, local_shape, layout);
//
// Other examples: `h[tp:partial]` (addends of a sum over tp), `(2*f[tp]) h` (a gated weight),
// `s b h # ep:replicated`, `# dp:partial` (a scalar), and `? s b h[tp]` (a guess).
// docs/trace_format.md has the grammar and its meaning. Source: SGLang's dump comparator
// established the grammar; here a program chooses the names of the axes.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include <ttrace/layout.h>
#include <ttrace/placement.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// How an axis of n ranks cuts a dimension.
enum class Sharding : std::uint8_t {
  kContiguous,  // rank r of n holds the r-th of n chunks (default)
  kZigzag,      // rank r of n holds the chunks r and 2n-1-r of 2n
  kPartial,     // not cut: the ranks hold addends, and the tensor is their sum over the axis
};

// One name within brackets: "cp:zigzag".
struct AxisUse {
  std::string axis;
  Sharding sharding = Sharding::kContiguous;
};

// One factor of a dimension. A plain dimension has one factor, `(a*b)` has two.
struct DimFactor {
  std::string name;                  // empty for a bare number
  std::optional<std::int64_t> size;  // logical size, from `2` or `v=257`
  std::vector<AxisUse> axes;         // cut from left to right
};

// A parsed string.
struct DimsSpec {
  std::vector<std::vector<DimFactor>> dims;
  std::vector<std::string> replicated;  // axes declared after `#`
  std::vector<AxisUse> summed = {};     // the same of addends: `# dp:partial`
  bool is_guess = false;                // `?` stands before the first word

  // Index of the dimension that is the plain factor `name`, or nothing.
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view name) const;
};

// Logical sizes of named dimensions. Needed for padded dimensions and uneven shards, whose local
// sizes do not determine the logical one.
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

// Throws UsageError that quotes the text and points at the offending word.
[[nodiscard]] DimsSpec parse_dims(std::string_view text);
// The shortest text that parse_dims() reads as the same value.
[[nodiscard]] std::string to_string(const DimsSpec& dims);
[[nodiscard]] std::string to_string(const DimFactor& factor);

// Where the local tensor of the rank that `layout` describes lies. An axis that the layout does not
// have is of size 1. Throws UsageError where `dims` and `local_shape` have different numbers of
// dimensions, or a size contradicts the local shape.
[[nodiscard]] Placement place(const DimsSpec& dims,
                              std::span<const std::int64_t> local_shape,
                              const Layout& layout,
                              const Sizes& sizes = {});

}  // namespace ttrace
