#include "trace/base/parse_integer.h"
#include "trace/base/split.h"

#include <ttrace/error.h>
#include <ttrace/placement.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

DimPlacement whole_dim(std::int64_t size) {
  DimPlacement dim{size, size, {}};
  if (size > 0) {
    dim.segments.push_back({0, 0, size});
  }
  return dim;
}

// Fails unless the segments, sorted by `start`, lie side by side within [0, size). `side` is
// "local" or "logical".
template <class Start>
void check_side_by_side(const std::vector<Segment>& segments,
                        Start start,
                        std::int64_t size,
                        std::size_t number,
                        const char* side) {
  constexpr auto kSubject = "dimension ";
  constexpr auto kOf = " of a placement, ";
  std::int64_t end = 0;
  for (const Segment& segment : segments) {
    TTRACE_CHECK(
        segment.extent > 0, FormatError, kSubject, number, kOf, side, ", has an empty segment");
    TTRACE_CHECK(start(segment) >= end,
                 FormatError,
                 kSubject,
                 number,
                 kOf,
                 side,
                 ", has segments that overlap at index ",
                 start(segment));
    TTRACE_CHECK(segment.extent <= size - start(segment),
                 FormatError,
                 kSubject,
                 number,
                 kOf,
                 side,
                 ", has a segment of ",
                 segment.extent,
                 " elements from index ",
                 start(segment),
                 ", beyond its size ",
                 size);
    end = start(segment) + segment.extent;
  }
}

void validate_dim(const DimPlacement& dim, std::size_t number) {
  TTRACE_CHECK(dim.local_size >= 0 && dim.logical_size >= 0,
               FormatError,
               "dimension ",
               number,
               " of a placement has a negative size");
  const auto logical = [](const Segment& s) { return s.logical; };
  check_side_by_side(
      dim.segments, [](const Segment& s) { return s.local; }, dim.local_size, number, "local");
  const auto ascending = [&](const Segment& a, const Segment& b) {
    return logical(a) < logical(b);
  };
  if (std::is_sorted(dim.segments.begin(), dim.segments.end(), ascending)) {
    check_side_by_side(dim.segments, logical, dim.logical_size, number, "logical");
    return;
  }
  std::vector<Segment> by_logical = dim.segments;
  std::sort(by_logical.begin(), by_logical.end(), ascending);
  check_side_by_side(by_logical, logical, dim.logical_size, number, "logical");
}

// The same as whole_dim(dim.logical_size), without building that.
bool is_whole_dim(const DimPlacement& dim) {
  const Segment all{0, 0, dim.logical_size};
  return !dim.sparse && dim.local_size == dim.logical_size &&
         (dim.logical_size == 0 ? dim.segments.empty()
                                : dim.segments.size() == 1 && dim.segments.front() == all);
}

// A range cannot exceed what 64 bits can count.
void validate_flat(const Placement& placement) {
  std::int64_t elements = 1;
  for (const DimPlacement& dim : placement.dims) {
    TTRACE_CHECK(!__builtin_mul_overflow(elements, dim.local_size, &elements),
                 FormatError,
                 "a placement's local tensor has more elements than 63 bits can count");
  }
  const FlatRange& range = *placement.flat;
  TTRACE_CHECK(range.first >= 0 && range.count >= 0 && range.first <= elements &&
                   range.count <= elements - range.first,
               FormatError,
               "a placement's flat range of ",
               range.count,
               " elements from element ",
               range.first,
               " lies outside its local tensor of ",
               elements,
               " elements");
}

// The logical index of every local index; kPadding for padding.
std::vector<std::int64_t> logical_indices(const DimPlacement& dim) {
  std::vector<std::int64_t> map(static_cast<std::size_t>(dim.local_size), kPadding);
  for (const Segment& segment : dim.segments) {
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      map[static_cast<std::size_t>(segment.local + i)] = segment.logical + i;
    }
  }
  return map;
}

std::vector<Segment> segments_of(std::span<const std::int64_t> map) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] == kPadding) {
      continue;
    }
    const bool continues = i > 0 && map[i - 1] != kPadding && map[i] == map[i - 1] + 1;
    if (continues) {
      ++segments.back().extent;
    } else {
      segments.push_back({static_cast<std::int64_t>(i), map[i], 1});
    }
  }
  return segments;
}

std::string text_of(const DimPlacement& dim) {
  std::string text = std::to_string(dim.logical_size);
  if (is_whole_dim(dim)) {
    return text;
  }
  text += "/" + std::to_string(dim.local_size) + (dim.sparse ? "?:" : ":");
  for (std::size_t i = 0; i < dim.segments.size(); ++i) {
    const Segment& segment = dim.segments[i];
    text += (i == 0 ? "" : ",") + std::to_string(segment.local) + "+" +
            std::to_string(segment.logical) + "+" + std::to_string(segment.extent);
  }
  return text;
}

std::string hexadecimal(double value) {
  char digits[64];
  const auto [end, error] =
      std::to_chars(std::begin(digits), std::end(digits), std::abs(value), std::chars_format::hex);
  TTRACE_CHECK(error == std::errc(), InternalError, "cannot print ", value);
  return (std::signbit(value) ? "-0x" : "0x") + std::string(digits, end);
}

// The beginning of a text that may have thousands of rows.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMostQuoted = 256;
  return "\"" + std::string(text.substr(0, kMostQuoted)) +
         (text.size() > kMostQuoted ? "...\"" : "\"");
}

class PlacementParser {
 public:
  explicit PlacementParser(std::string_view text) : text_(text) {}

  Placement parse() {
    Placement placement;
    bool dims_over = false;
    const std::vector<std::string_view> words = split_at(text_, ' ');
    placement.dims.reserve(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      word_ = words[i];
      if (word_.starts_with("partial=")) {
        parse_partial(word_.substr(8), placement);
        dims_over = true;
      } else if (word_.starts_with("scale=")) {
        placement.scale = parse_scale(word_.substr(6));
        dims_over = true;
      } else if (word_.starts_with("flat=")) {
        placement.flat = parse_flat(word_.substr(5));
        dims_over = true;
      } else if (word_ == "-") {
        require(i == 0, "\"-\" in the first place only");
        dims_over = true;
      } else {
        require(!dims_over, "an option");
        placement.dims.push_back(parse_dim());
      }
    }
    word_ = words.front();
    require(word_ == "-" || !placement.dims.empty(), "a dimension or \"-\"");
    validate_quoting(placement);
    return placement;
  }

 private:
  void validate_quoting(const Placement& placement) const {
    try {
      validate(placement);
    } catch (const FormatError& error) {
      TTRACE_THROW(FormatError, quoted(text_), " is not a placement: ", error.message());
    }
  }

  // logical_size or logical_size/local_size:segments, with "?" before the colon where it is sparse
  [[nodiscard]] DimPlacement parse_dim() const {
    const std::size_t slash = word_.find('/');
    const std::int64_t logical_size = number(word_.substr(0, slash));
    if (slash == std::string_view::npos) {
      return whole_dim(logical_size);
    }
    const std::size_t colon = word_.find(':', slash);
    require(colon != std::string_view::npos, "\":\" after the local size");
    std::string_view local_size = word_.substr(slash + 1, colon - slash - 1);
    const bool sparse = local_size.ends_with('?');
    local_size.remove_suffix(sparse ? 1 : 0);
    DimPlacement dim{number(local_size), logical_size, {}, sparse};
    const std::string_view list = word_.substr(colon + 1);
    if (list.empty()) {
      return dim;
    }
    for (const std::string_view item : split_at(list, ',')) {
      const std::vector<std::string_view> fields = split_at(item, '+');
      require(fields.size() == 3, "local+logical+extent");
      dim.segments.push_back({number(fields[0]), number(fields[1]), number(fields[2])});
    }
    return dim;
  }

  // index/count:axes
  void parse_partial(std::string_view value, Placement& placement) const {
    const std::size_t slash = value.find('/');
    const std::size_t colon = value.find(':');
    require(slash != std::string_view::npos && colon != std::string_view::npos && slash < colon,
            "partial=index/count:axes");
    placement.partial_index = small_number(value.substr(0, slash));
    placement.partial_count = small_number(value.substr(slash + 1, colon - slash - 1));
    placement.partial_over = value.substr(colon + 1);
  }

  // first+count
  [[nodiscard]] FlatRange parse_flat(std::string_view value) const {
    const std::vector<std::string_view> fields = split_at(value, '+');
    require(fields.size() == 2, "flat=first+count");
    return {number(fields[0]), number(fields[1])};
  }

  [[nodiscard]] double parse_scale(std::string_view value) const {
    const bool negative = value.starts_with('-');
    value.remove_prefix(negative ? 1 : 0);
    require(value.starts_with("0x"), "a hexadecimal number such as 0x1p-1");
    value.remove_prefix(2);
    const auto scale = parse_number<double>(value, std::chars_format::hex);
    require(scale.has_value(), "a hexadecimal number such as 0x1p-1");
    return negative ? -*scale : *scale;
  }

  [[nodiscard]] int small_number(std::string_view digits) const {
    const std::int64_t value = number(digits);
    require(value <= std::numeric_limits<int>::max(), "a smaller number");
    return static_cast<int>(value);
  }

  [[nodiscard]] std::int64_t number(std::string_view digits) const {
    const std::optional<std::int64_t> value = parse_integer(digits);
    require(value.has_value(), "a number");
    return *value;
  }

  void require(bool condition, std::string_view expected) const {
    TTRACE_CHECK(condition,
                 FormatError,
                 quoted(text_),
                 " is not a placement: it needs ",
                 expected,
                 " in its word ",
                 quoted(word_));
  }

  std::string_view text_;
  std::string_view word_;
};

}  // namespace

std::vector<std::int64_t> Placement::local_shape() const {
  if (flat) {
    return {flat->count};
  }
  std::vector<std::int64_t> shape;
  shape.reserve(dims.size());
  for (const DimPlacement& dim : dims) {
    shape.push_back(dim.local_size);
  }
  return shape;
}

std::vector<std::int64_t> Placement::logical_shape() const {
  std::vector<std::int64_t> shape;
  shape.reserve(dims.size());
  for (const DimPlacement& dim : dims) {
    shape.push_back(dim.logical_size);
  }
  return shape;
}

bool Placement::is_whole() const {
  return !flat && partial_count == 1 && scale == 1.0 &&
         std::all_of(dims.begin(), dims.end(), is_whole_dim);
}

Placement whole(std::span<const std::int64_t> shape) {
  Placement placement;
  for (const std::int64_t size : shape) {
    placement.dims.push_back(whole_dim(size));
  }
  return placement;
}

void validate(const Placement& placement) {
  for (std::size_t i = 0; i < placement.dims.size(); ++i) {
    validate_dim(placement.dims[i], i);
  }
  const auto sparse = std::count_if(placement.dims.begin(),
                                    placement.dims.end(),
                                    [](const DimPlacement& dim) { return dim.sparse; });
  TTRACE_CHECK(sparse <= (placement.flat ? 0 : 1),
               FormatError,
               "a placement has ",
               sparse,
               " sparse dimensions",
               placement.flat ? " and a flat range, where none" : ", where one",
               " may be");
  if (placement.flat) {
    validate_flat(placement);
  }
  TTRACE_CHECK(placement.partial_index >= 0 && placement.partial_index < placement.partial_count,
               FormatError,
               "a placement's partial index ",
               placement.partial_index,
               " lies outside its count ",
               placement.partial_count);
  TTRACE_CHECK(std::isfinite(placement.scale),
               FormatError,
               "a placement's scale is ",
               placement.scale,
               "; it must be finite");
}

DimPlacement index_map(std::span<const std::int64_t> indices, std::int64_t logical_size) {
  std::vector<std::int64_t> sorted(indices.begin(), indices.end());
  std::erase(sorted, kPadding);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  TTRACE_CHECK(twice == sorted.end(),
               UsageError,
               "two local rows are declared as the logical row ",
               twice == sorted.end() ? 0 : *twice,
               "; declare every row once");
  for (const std::int64_t index : indices) {
    TTRACE_CHECK(index == kPadding || (index >= 0 && index < logical_size),
                 UsageError,
                 "a local row is declared as the logical row ",
                 index,
                 " of ",
                 logical_size,
                 "; pass the number of all logical rows, and -1 for padding");
  }
  return {std::ssize(indices), logical_size, segments_of(indices)};
}

Placement permute(Placement placement, std::size_t dim, std::span<const std::int64_t> order) {
  TTRACE_CHECK(!placement.flat, UsageError, "a flat range of a tensor has no samples to permute");
  TTRACE_CHECK(dim < placement.dims.size(),
               UsageError,
               "cannot permute dimension ",
               dim,
               " of a tensor with ",
               placement.dims.size(),
               " dimensions");
  DimPlacement& target = placement.dims[dim];
  const auto size = static_cast<std::size_t>(target.local_size);
  TTRACE_CHECK(order.size() == size,
               UsageError,
               "an order of ",
               order.size(),
               " samples does not fit dimension ",
               dim,
               " of local size ",
               size,
               "; permute as many samples as the tensor has");
  const std::vector<std::int64_t> map = logical_indices(target);
  std::vector<std::int64_t> permuted(size);
  std::vector<bool> seen(size, false);
  for (std::size_t i = 0; i < size; ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    TTRACE_CHECK(order[i] >= 0 && from < size && !seen[from],
                 UsageError,
                 "the order of samples is not a permutation: at position ",
                 i,
                 " it has ",
                 order[i],
                 " a second time, or beyond its ",
                 size,
                 " samples");
    seen[from] = true;
    permuted[i] = map[from];
  }
  target.segments = segments_of(permuted);
  return placement;
}

std::string to_string(const Placement& placement) {
  std::string text = placement.dims.empty() ? "-" : "";
  for (const DimPlacement& dim : placement.dims) {
    text += (text.empty() ? "" : " ") + text_of(dim);
  }
  if (placement.partial_count != 1 || !placement.partial_over.empty()) {
    text += " partial=" + std::to_string(placement.partial_index) + "/" +
            std::to_string(placement.partial_count) + ":" + placement.partial_over;
  }
  if (placement.scale != 1.0) {
    text += " scale=" + hexadecimal(placement.scale);
  }
  if (placement.flat) {
    text += " flat=" + std::to_string(placement.flat->first) + "+" +
            std::to_string(placement.flat->count);
  }
  return text;
}

Placement parse_placement(std::string_view text) {
  return PlacementParser(text).parse();
}

}  // namespace ttrace
