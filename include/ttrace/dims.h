// The `dims` grammar in which people write placements: `s[cp:zigzag,sp] b h[tp]`, `h[tp:partial]`,
// `(2*f[tp]) h`, `s b h # ep:replicated`. Grammar and meaning: docs/trace_format.md.
//
// Source: the grammar was established by SGLang's dump comparator; axis names are free here.
#pragma once

#include <ttrace/export.h>
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

enum class Sharding : std::uint8_t {
  kContiguous,  // rank r of n holds the r-th chunk (default)
  kZigzag,      // of 2n chunks rank r holds r and 2n-1-r
  kPartial,     // not cut: values are addends, summed over the axis
};

struct TTRACE_API AxisUse {
  std::string axis;
  Sharding sharding = Sharding::kContiguous;
};

// One factor of a dimension; a plain dimension has one factor, `(a*b)` two.
struct TTRACE_API DimFactor {
  std::string name;                  // empty for a bare number
  std::optional<std::int64_t> size;  // logical size, from `2` or `v=257`
  std::vector<AxisUse> axes;         // cut from left to right
};

struct TTRACE_API DimsSpec {
  std::vector<std::vector<DimFactor>> dims;
  std::vector<std::string> replicated;  // axes declared after `#`

  // Index of the dimension that is the plain factor `name`, or nothing.
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view name) const;
};

// Logical sizes of named dimensions, where local sizes alone do not tell them (padding, uneven
// shards).
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

// Throws UsageError that quotes the text and points at the offending word.
[[nodiscard]] TTRACE_API DimsSpec parse_dims(std::string_view text);
// The text in its shortest form; parse_dims reads it back.
[[nodiscard]] TTRACE_API std::string to_string(const DimsSpec& dims);
[[nodiscard]] TTRACE_API std::string to_string(const DimFactor& factor);

// Where the local tensor of the rank described by `layout` lies. Axes the layout lacks have size 1.
// Throws UsageError where the rank counts differ or a size contradicts the local shape.
[[nodiscard]] TTRACE_API Placement place(const DimsSpec& dims,
                                         std::span<const std::int64_t> local_shape,
                                         const Layout& layout,
                                         const Sizes& sizes = {});

}  // namespace ttrace
