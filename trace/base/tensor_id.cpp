#include "trace/base/kind.h"
#include "trace/base/parse_integer.h"

#include <ttrace/error.h>
#include <ttrace/tensor_id.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace ttrace {
namespace {

std::optional<Kind> find_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kKindTraits, name, &KindTraits::name);
  return found == kKindTraits.end() ? std::nullopt : std::optional(found->kind);
}

// Walks over the id's text. Every error quotes the whole text and states what was expected.
class IdParser {
 public:
  explicit IdParser(std::string_view text) : text_(text), rest_(text) {}

  TensorId parse() {
    TensorId id;
    std::string_view part = take_part();
    const std::optional<std::int64_t> step = parse_integer_after('s', part);
    require(step.has_value(), "s and a number", part);
    id.step = *step;
    part = take_part();
    if (const auto microbatch = parse_integer_after('m', part)) {
      id.microbatch = *microbatch;
      part = take_part();
    }
    const std::optional<Kind> kind = find_kind(part);
    require(kind.has_value(), "a kind such as \"output\" or \"main_grad\"", part);
    id.kind = *kind;
    const std::string_view path = take_part();
    require(is_canonical_path(path), "a path of parts [A-Za-z0-9_-] joined by dots", path);
    id.path = path;
    parse_end(id);
    return id;
  }

 private:
  // Up to the next slash, which is consumed.
  std::string_view take_part() {
    const std::size_t slash = rest_.find('/');
    require(slash != std::string_view::npos, "s<step>[/m<microbatch>]/<kind>/<path>/<slot>", rest_);
    const std::string_view part = rest_.substr(0, slash);
    rest_.remove_prefix(slash + 1);
    return part;
  }

  // slot ["#" call] ["~"]
  void parse_end(TensorId& id) {
    const std::string_view end = rest_;
    if (rest_.ends_with('~')) {
      id.recompute = true;
      rest_.remove_suffix(1);
    }
    const std::size_t hash = rest_.find('#');
    if (hash != std::string_view::npos) {
      id.call = small_number(rest_.substr(hash + 1), end);
      require(id.call > 0, "a call number of at least 1 after \"#\"", end);
    }
    id.slot = small_number(rest_.substr(0, hash), end);
  }

  [[nodiscard]] int small_number(std::string_view digits, std::string_view end) const {
    const std::optional<std::int64_t> number = parse_integer(digits);
    require(number && *number <= std::numeric_limits<int>::max(), "<slot>[#<call>][~]", end);
    return static_cast<int>(*number);
  }

  void require(bool condition, std::string_view expected, std::string_view found) const {
    TTRACE_CHECK(condition,
                 FormatError,
                 "\"",
                 text_,
                 "\" is not a tensor id: it needs ",
                 expected,
                 " instead of \"",
                 found,
                 "\"");
  }

  std::string_view text_;
  std::string_view rest_;
};

bool is_path_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

std::string_view name_of(Kind kind) {
  const auto number = static_cast<std::size_t>(kind);
  TTRACE_CHECK(number < kKindTraits.size(), InternalError, "kind number ", number, " is unknown");
  return kKindTraits[number].name;
}

Kind parse_kind(std::string_view name) {
  const std::optional<Kind> kind = find_kind(name);
  TTRACE_CHECK(kind.has_value(),
               FormatError,
               "\"",
               name,
               "\" is not a kind of tensor; write one such as \"output\" or \"main_grad\"");
  return *kind;
}

std::string to_string(const TensorId& id) {
  std::string text = "s" + std::to_string(id.step);
  if (id.microbatch != kNoMicrobatch) {
    text += "/m" + std::to_string(id.microbatch);
  }
  text.append("/").append(name_of(id.kind)).append("/").append(id.path);
  text += "/" + std::to_string(id.slot);
  if (id.call != 0) {
    text += "#" + std::to_string(id.call);
  }
  if (id.recompute) {
    text += "~";
  }
  return text;
}

TensorId parse_tensor_id(std::string_view text) {
  return IdParser(text).parse();
}

bool is_canonical_path(std::string_view path) {
  bool part_has_characters = false;
  for (const char c : path) {
    if (c == '.' ? !part_has_characters : !is_path_character(c)) {
      return false;
    }
    part_has_characters = c != '.';
  }
  return part_has_characters;
}

}  // namespace ttrace
