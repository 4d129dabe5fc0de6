#include "trace/base/parse_integer.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <algorithm>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr std::string_view kGuess = "?";

// ---- Text to DimsSpec.

bool is_name_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) {
      return words;
    }
    text.remove_prefix(begin);
    const std::size_t length = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
}

// Reads one word from left to right. Every error quotes the dims and the word, and states what was
// expected.
class WordParser {
 public:
  WordParser(std::string_view dims, std::string_view word)
      : dims_(dims), word_(word), rest_(word) {}

  std::vector<DimFactor> parse_dimension() {
    std::vector<DimFactor> factors;
    if (take('(')) {
      do {
        factors.push_back(parse_factor());
      } while (take('*'));
      require(take(')'), "\"*\" or \")\"");
    } else {
      factors.push_back(parse_factor());
    }
    require(rest_.empty(), "the end of the word");
    return factors;
  }

  // Reads a word after `#`.
  void parse_whole(DimsSpec& dims) {
    constexpr std::string_view kExpected = "axis:replicated or axis:partial";
    std::string axis(take_name("an axis"));
    require(take(':'), kExpected);
    const std::string_view meaning = take_name(kExpected);
    require((meaning == "replicated" || meaning == "partial") && rest_.empty(), kExpected);
    if (meaning == "partial") {
      dims.summed.push_back({std::move(axis), Sharding::kPartial});
    } else {
      dims.replicated.push_back(std::move(axis));
    }
  }

 private:
  DimFactor parse_factor() {
    DimFactor factor;
    if (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      factor.size = take_size();
    } else {
      factor.name = take_name("a dimension's name or size");
      if (take('=')) {
        factor.size = take_size();
      }
    }
    if (take('[')) {
      do {
        factor.axes.push_back(parse_use());
      } while (take(','));
      require(take(']'), "\",\" or \"]\"");
    }
    return factor;
  }

  AxisUse parse_use() {
    AxisUse use{std::string(take_name("an axis")), Sharding::kContiguous};
    if (take(':')) {
      const std::string_view before = rest_;
      const std::string_view sharding = take_name("contiguous, zigzag or partial");
      if (sharding == "zigzag") {
        use.sharding = Sharding::kZigzag;
      } else if (sharding == "partial") {
        use.sharding = Sharding::kPartial;
      } else if (sharding != "contiguous" && sharding != "sharded" && sharding != "natural") {
        rest_ = before;
        require(false, "contiguous, zigzag or partial");
      }
    }
    return use;
  }

  bool take(char c) {
    const bool there = !rest_.empty() && rest_.front() == c;
    rest_.remove_prefix(there ? 1 : 0);
    return there;
  }

  std::string_view take_name(std::string_view expected) {
    const auto* const end = std::find_if_not(rest_.begin(), rest_.end(), is_name_character);
    const std::string_view name = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    require(!name.empty() && !(name.front() >= '0' && name.front() <= '9'), expected);
    rest_.remove_prefix(name.size());
    return name;
  }

  std::int64_t take_size() {
    const std::size_t length = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const std::optional<std::int64_t> size = parse_integer(rest_.substr(0, length));
    require(size && *size > 0, "a size of at least 1");
    rest_.remove_prefix(length);
    return *size;
  }

  void require(bool condition, std::string_view expected) const {
    TTRACE_CHECK(condition,
                 UsageError,
                 "dims \"",
                 dims_,
                 "\": in the word \"",
                 word_,
                 "\", ",
                 expected,
                 " is expected",
                 rest_.empty() ? " at its end" : " at \"",
                 rest_,
                 rest_.empty() ? "" : "\"");
  }

  std::string_view dims_;
  std::string_view word_;
  std::string_view rest_;
};

// One axis has one meaning per tensor.
void check_axes_once(std::string_view text, const DimsSpec& dims) {
  std::set<std::string, std::less<>> seen;
  const auto check = [&](const std::string& axis) {
    TTRACE_CHECK(seen.insert(axis).second,
                 UsageError,
                 "dims \"",
                 text,
                 "\": axis \"",
                 axis,
                 "\" occurs twice; an axis can cut, sum or replicate a tensor only once");
  };
  for (const std::vector<DimFactor>& factors : dims.dims) {
    for (const DimFactor& factor : factors) {
      for (const AxisUse& use : factor.axes) {
        check(use.axis);
      }
    }
  }
  for (const AxisUse& use : dims.summed) {
    check(use.axis);
  }
  for (const std::string& axis : dims.replicated) {
    check(axis);
  }
}

// ---- DimsSpec to text.

std::string text_of(const std::vector<DimFactor>& factors) {
  std::string text;
  for (const DimFactor& factor : factors) {
    text += (text.empty() ? "" : "*") + to_string(factor);
  }
  return factors.size() == 1 ? text : "(" + text + ")";
}

}  // namespace

std::optional<std::size_t> DimsSpec::index_of(std::string_view name) const {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].size() == 1 && dims[i].front().name == name) {
      return i;
    }
  }
  return std::nullopt;
}

DimsSpec parse_dims(std::string_view text) {
  const std::size_t hash = text.find('#');
  DimsSpec dims;
  for (const std::string_view word : words_of(text.substr(0, hash))) {
    if (word == kGuess && dims.dims.empty()) {
      dims.is_guess = true;
    } else {
      dims.dims.push_back(WordParser(text, word).parse_dimension());
    }
  }
  TTRACE_CHECK(!dims.dims.empty() || hash != std::string_view::npos,
               UsageError,
               "dims \"",
               text,
               "\" name no dimension; write one word per dimension, such as \"s b h[tp]\", or # "
               "for a scalar");
  if (hash != std::string_view::npos) {
    for (const std::string_view word : words_of(text.substr(hash + 1))) {
      WordParser(text, word).parse_whole(dims);
    }
  }
  check_axes_once(text, dims);
  return dims;
}

std::string to_string(const DimFactor& factor) {
  std::string text = factor.name;
  if (factor.size) {
    text += (text.empty() ? "" : "=") + std::to_string(*factor.size);
  }
  for (std::size_t i = 0; i < factor.axes.size(); ++i) {
    const AxisUse& use = factor.axes[i];
    text += (i == 0 ? "[" : ",") + use.axis;
    if (use.sharding != Sharding::kContiguous) {
      text += use.sharding == Sharding::kZigzag ? ":zigzag" : ":partial";
    }
  }
  return text + (factor.axes.empty() ? "" : "]");
}

std::string to_string(const DimsSpec& dims) {
  std::string text(dims.is_guess ? kGuess : "");
  for (const std::vector<DimFactor>& factors : dims.dims) {
    text += (text.empty() ? "" : " ") + text_of(factors);
  }
  std::string whole;
  for (const AxisUse& use : dims.summed) {
    whole += " " + use.axis + ":partial";
  }
  for (const std::string& axis : dims.replicated) {
    whole += " " + axis + ":replicated";
  }
  if (!whole.empty() || dims.dims.empty()) {
    text += (text.empty() ? "#" : " #") + whole;
  }
  return text;
}

}  // namespace ttrace
