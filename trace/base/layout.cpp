#include <ttrace/error.h>
#include <ttrace/layout.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

const Axis* find_axis(const Layout& layout, std::string_view name) {
  const auto found = std::find_if(
      layout.axes.begin(), layout.axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == layout.axes.end() ? nullptr : &*found;
}

// An axis that equals another one must do so in size and coordinate, or placements that use either
// would contradict each other.
void check_followed(const Layout& layout, const Axis& axis) {
  const Axis* followed = find_axis(layout, axis.follows);
  TTRACE_CHECK(followed != nullptr,
               UsageError,
               "axis \"",
               axis.name,
               "\" follows \"",
               axis.follows,
               "\", but the layout does not have that axis; add \"",
               axis.follows,
               "\" first");
  TTRACE_CHECK(followed->size == axis.size && followed->coordinate == axis.coordinate,
               UsageError,
               "axis \"",
               axis.name,
               "\" (coordinate ",
               axis.coordinate,
               " of ",
               axis.size,
               ") follows \"",
               axis.follows,
               "\" (coordinate ",
               followed->coordinate,
               " of ",
               followed->size,
               "); give both the same size and coordinate");
}

}  // namespace

Layout& Layout::add(std::string name, int size, int coordinate, std::string follows) {
  Axis axis{std::move(name), size, coordinate, std::move(follows)};
  TTRACE_CHECK(!axis.name.empty(), UsageError, "an axis of the layout has no name; give it one");
  TTRACE_CHECK(find_axis(*this, axis.name) == nullptr,
               UsageError,
               "axis \"",
               axis.name,
               "\" is in the layout already; add every axis once");
  TTRACE_CHECK(coordinate >= 0 && coordinate < size,
               UsageError,
               "axis \"",
               axis.name,
               "\" has coordinate ",
               coordinate,
               ", which is outside [0, ",
               size,
               "); pass (name, size, coordinate)");
  if (!axis.follows.empty()) {
    check_followed(*this, axis);
  }
  axes.push_back(std::move(axis));
  return *this;
}

int Layout::size(std::string_view axis) const {
  const Axis* found = find_axis(*this, axis);
  return found == nullptr ? 1 : found->size;
}

int Layout::coordinate(std::string_view axis) const {
  const Axis* found = find_axis(*this, axis);
  return found == nullptr ? 0 : found->coordinate;
}

std::string to_string(const Layout& layout) {
  std::string text;
  for (const Axis& axis : layout.axes) {
    if (axis.size > 1) {
      text += (text.empty() ? "" : ", ") + axis.name + " " + std::to_string(axis.size);
    }
  }
  return text.empty() ? "one device" : text;
}

}  // namespace ttrace
