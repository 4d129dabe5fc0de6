#include "analysis/align/model_vocabulary.h"

#include "trace/base/parse_integer.h"

#include <algorithm>

namespace ttrace {
ModelVocabulary::ModelVocabulary() : ModelVocabulary(Section{}) {}

ModelVocabulary::ModelVocabulary(const Section& roles) {
  for (const RoleTraits& traits : kRoles) {
    patterns_.at(static_cast<std::size_t>(traits.role)) = patterns_of(traits.role, roles);
  }
}

bool ModelVocabulary::has(Role role) const {
  return !patterns_.at(static_cast<std::size_t>(role)).empty();
}

bool ModelVocabulary::is(Role role, std::string_view name) const {
  return fits_any(patterns_.at(static_cast<std::size_t>(role)), name);
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

bool ModelVocabulary::differ_in_number(Role role,
                                       const TensorId& left,
                                       const TensorId& right) const {
  TensorId same = left;
  same.path = right.path;
  return same == right && differ_in_number(role, left.path, right.path);
}

int ModelVocabulary::axis_size(Role role, const Layout& layout) const {
  int size = 1;
  for (const Axis& axis : layout.axes) {
    size = is(role, axis.name) ? std::max(size, axis.size) : size;
  }
  return size;
}

}  // namespace ttrace
