#include "analysis/align/model_vocabulary.h"

#include "trace/base/parse_integer.h"

#include <algorithm>
#include <sstream>

namespace ttrace {
namespace {

std::vector<std::string> patterns_in(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::vector<std::string> patterns;
  for (std::string word; words >> word;) {
    patterns.push_back(word);
  }
  return patterns;
}

// `*` stands for any letters, or none.
bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  std::size_t next = 0;                       // in `pattern`
  std::size_t star = std::string_view::npos;  // the last one that was passed
  std::size_t after_star = 0;                 // where in `text` its letters end
  while (at < text.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      after_star = at;
    } else if (next < pattern.size() && pattern[next] == text[at]) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string_view::npos;
}

}  // namespace

ModelVocabulary::ModelVocabulary() : ModelVocabulary(Section{}) {}

ModelVocabulary::ModelVocabulary(const Section& roles) {
  for (const RoleTraits& traits : kRoles) {
    const auto given = roles.find(std::string(traits.name));
    patterns_.at(static_cast<std::size_t>(traits.role)) =
        patterns_in(given == roles.end() ? traits.usual : std::string_view(given->second));
  }
}

bool ModelVocabulary::is(Role role, std::string_view name) const {
  return std::ranges::any_of(
      patterns_.at(static_cast<std::size_t>(role)),
      [&](const std::string& pattern) { return matches_wildcards(pattern, name); });
}

bool ModelVocabulary::is_below(Role role, std::string_view path) const {
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1)) {
    if (is(role, path.substr(0, dot))) {
      return true;
    }
  }
  return false;
}

std::optional<NumberedPath> ModelVocabulary::numbered(Role role, std::string_view path) const {
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1)) {
    const std::size_t end = std::min(path.find('.', dot + 1), path.size());
    const auto number = parse_integer(path.substr(dot + 1, end - dot - 1));
    if (number && is(role, path.substr(0, dot))) {
      return NumberedPath{
          std::string(path.substr(0, dot + 1)), *number, std::string(path.substr(end))};
    }
  }
  return std::nullopt;
}

bool ModelVocabulary::differ_in_number(Role role,
                                       std::string_view left,
                                       std::string_view right) const {
  const auto one = numbered(role, left);
  const auto two = numbered(role, right);
  return one && two && one->number != two->number && one->before == two->before &&
         one->after == two->after;
}

int ModelVocabulary::axis_size(Role role, const Layout& layout) const {
  int size = 1;
  for (const Axis& axis : layout.axes) {
    size = is(role, axis.name) ? std::max(size, axis.size) : size;
  }
  return size;
}

}  // namespace ttrace
