#include "analysis/cli/options/array_text.h"

#include "analysis/findings/wording.h"
#include "trace/base/parse_integer.h"
#include "trace/base/split.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <ostream>
#include <string_view>

namespace ttrace::cli {
namespace {

constexpr std::int64_t kEdge = 3;        // elements shown at each end of a shortened dimension
constexpr std::size_t kLineWidth = 100;  // of innermost rows

// numpy's rule: a negative index counts from the end, and an index outside is moved to the end.
std::int64_t clipped(std::int64_t index, std::int64_t extent) {
  const std::int64_t from_begin = index < 0 ? index + extent : index;
  return std::clamp<std::int64_t>(from_begin, 0, extent);
}

IndexRange parse_range(std::string_view word, std::int64_t extent, const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    TTRACE_THROW(UsageError, fmt::format("--slice is '{}', but {}", text, why));
  };
  const std::vector<std::string_view> parts = split_at(word, ':');
  std::vector<std::optional<std::int64_t>> numbers;
  for (const std::string_view part : parts) {
    numbers.push_back(parse_number<std::int64_t>(part));
    if (!numbers.back() && (!part.empty() || parts.size() == 1)) {
      refuse(fmt::format("'{}' is neither a number nor FIRST:LAST", word));
    }
  }
  if (parts.size() == 1) {
    const std::int64_t index = *numbers[0] < 0 ? *numbers[0] + extent : *numbers[0];
    if (index < 0 || index >= extent) {
      refuse(fmt::format("index {} lies outside a dimension of {}", word, extent));
    }
    return {{index, index + 1}, 1, true};
  }
  IndexRange range{
      {clipped(numbers[0].value_or(0), extent), clipped(numbers[1].value_or(extent), extent)},
      parts.size() > 2 ? numbers[2].value_or(1) : 1,
      false};
  if (parts.size() > 3 || range.step < 1) {
    refuse(fmt::format("'{}' must be FIRST:LAST:STEP with a STEP of at least 1", word));
  }
  return range;
}

template <class Number>
std::string shortest(Number value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

template <class Value>
Value read(const std::byte* data) {
  Value value{};
  std::memcpy(&value, data, sizeof value);
  return value;
}

std::string element_text(ElementType type, const std::byte* data) {
  switch (type) {
    case ElementType::kF64:
      return shortest(read<double>(data));
    case ElementType::kI64:
      return shortest(read<std::int64_t>(data));
    case ElementType::kI32:
      return shortest(read<std::int32_t>(data));
    case ElementType::kU8:
      return shortest(static_cast<int>(read<std::uint8_t>(data)));
    case ElementType::kBool:
      return read<std::uint8_t>(data) == 0 ? "false" : "true";
    default:
      break;
  }
  double value = 0.0;
  to_double(type, data, 1, &value);
  return shortest(static_cast<float>(value));  // exact: f32 and all shorter types are floats
}

class Printer {
 public:
  Printer(std::ostream& out, const Array& array, std::span<const IndexRange> ranges, bool shortened)
      : out_(out), array_(array), ranges_(ranges), shortened_(shortened) {
    std::int64_t stride = 1;
    strides_.resize(ranges.size());
    for (std::size_t dim = ranges.size(); dim-- > 0;) {
      strides_[dim] = stride;
      stride *= array.shape[dim];
      last_ = ranges[dim].single || last_ ? last_ : std::optional(dim);
    }
    visit(0, 0, [this](const std::string& text) { width_ = std::max(width_, text.size()); });
  }

  void print() { print_dimension(0, 0, 0); }

 private:
  [[nodiscard]] std::string text_at(std::int64_t offset) const {
    return element_text(array_.type,
                        array_.data + static_cast<std::size_t>(offset) * element_size(array_.type));
  }

  // Calls `each` with the offsets of a dimension's shown indices; -1 stands for the gap.
  template <class Each>
  void for_shown(std::size_t dim, std::int64_t offset, const Each& each) const {
    const IndexRange& range = ranges_[dim];
    const std::int64_t count = range.count();
    const bool cut = shortened_ && count > 2 * kEdge;
    for (std::int64_t i = 0; i < count; ++i) {
      if (cut && i == kEdge) {
        each(-1);
        i = count - kEdge;
      }
      each(offset + (range.indices.begin + i * range.step) * strides_[dim]);
    }
  }

  template <class Each>
  void visit(std::size_t dim, std::int64_t offset, const Each& each) const {
    if (dim == ranges_.size()) {
      each(text_at(offset));
      return;
    }
    for_shown(dim, offset, [&](std::int64_t next) {
      if (next >= 0) {
        visit(dim + 1, next, each);
      }
    });
  }

  void print_dimension(std::size_t dim, std::int64_t offset, std::size_t depth) {
    if (dim == ranges_.size()) {
      out_ << text_at(offset);
    } else if (ranges_[dim].single) {
      for_shown(dim, offset, [&](std::int64_t next) { print_dimension(dim + 1, next, depth); });
    } else if (dim == last_) {
      print_row(dim, offset, depth);
    } else {
      out_ << '[';
      bool first = true;
      for_shown(dim, offset, [&](std::int64_t next) {
        out_ << (first ? "" : "\n" + std::string(depth + 1, ' '));
        first = false;
        if (next < 0) {
          out_ << "...";
        } else {
          print_dimension(dim + 1, next, depth + 1);
        }
      });
      out_ << ']';
    }
  }

  void print_row(std::size_t dim, std::int64_t offset, std::size_t depth) {
    out_ << '[';
    std::size_t column = depth + 1;
    bool first = true;
    for_shown(dim, offset, [&](std::int64_t next) {
      std::string text = "...";
      if (next >= 0) {
        visit(dim + 1, next, [&text](const std::string& value) { text = value; });
        text.insert(0, width_ - text.size(), ' ');
      }
      if (!first && column + 1 + text.size() > kLineWidth) {
        out_ << '\n' << std::string(depth + 1, ' ');
        column = depth + 1;
      } else if (!first) {
        out_ << ' ';
        ++column;
      }
      first = false;
      out_ << text;
      column += text.size();
    });
    out_ << ']';
  }

  std::ostream& out_;
  const Array& array_;
  std::span<const IndexRange> ranges_;
  bool shortened_;
  std::vector<std::int64_t> strides_;
  std::optional<std::size_t> last_;  // the innermost dimension that is printed
  std::size_t width_ = 0;            // of the longest value
};

}  // namespace

std::int64_t IndexRange::count() const {
  const auto [begin, end] = indices;
  return begin < end ? (end - begin + step - 1) / step : 0;
}

std::vector<IndexRange> parse_ranges(const std::string& text, std::span<const std::int64_t> shape) {
  std::vector<IndexRange> ranges;
  if (!text.empty()) {
    std::string bare = text;
    std::erase(bare, ' ');
    const std::vector<std::string_view> words = split_at(bare, ',');
    TTRACE_CHECK(words.size() <= shape.size(),
                 UsageError,
                 fmt::format("--slice is '{}', but the tensor has only {}",
                             text,
                             counted(shape.size(), "dimension")));
    for (const std::string_view word : words) {
      ranges.push_back(parse_range(word, shape[ranges.size()], text));
    }
  }
  while (ranges.size() < shape.size()) {
    ranges.push_back({{0, shape[ranges.size()]}, 1, false});
  }
  return ranges;
}

void print_array(std::ostream& out,
                 const Array& array,
                 std::span<const IndexRange> ranges,
                 std::int64_t threshold) {
  std::int64_t elements = 1;
  for (const IndexRange& range : ranges) {
    elements *= range.count();
  }
  Printer(out, array, ranges, elements > threshold).print();
  out << '\n';
}

}  // namespace ttrace::cli
