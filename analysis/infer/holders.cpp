#include "analysis/infer/holders.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace ttrace {
namespace {

// More are more than a layout has, and sets of them too many to list.
constexpr std::size_t kMostAxes = 12;

std::vector<HolderAxis> axes_of(const std::vector<Layout>& layouts) {
  std::vector<HolderAxis> axes;
  for (const Axis& axis : layouts.front().axes) {
    HolderAxis found{axis.name, axis.size, {}};
    for (const Layout& layout : layouts) {
      found.coordinates.push_back(layout.coordinate(axis.name));
    }
    std::vector<bool> seen(static_cast<std::size_t>(axis.size), false);
    for (const int coordinate : found.coordinates) {
      seen[static_cast<std::size_t>(coordinate)] = true;
    }
    const bool complete = std::ranges::find(seen, false) == seen.end();
    const bool known =
        std::ranges::find(axes, found.coordinates, &HolderAxis::coordinates) != axes.end();
    if (axis.size > 1 && complete && !known && axes.size() < kMostAxes) {
      axes.push_back(std::move(found));
    }
  }
  return axes;
}

}  // namespace

Holders::Holders(std::vector<Layout> layouts)
    : layouts_(std::move(layouts)), axes_(axes_of(layouts_)) {
  const auto sets = AxisSet{1} << axes_.size();
  for (AxisSet set = 0; set < sets; ++set) {
    independent_.push_back(find_independent(set));
  }
}

bool Holders::find_independent(AxisSet set) const {
  if (static_cast<std::size_t>(combinations(set)) > count()) {
    return false;
  }
  std::vector<int> holders(static_cast<std::size_t>(combinations(set)), 0);
  for (std::size_t holder = 0; holder < count(); ++holder) {
    ++holders[static_cast<std::size_t>(place(set, holder))];
  }
  return std::ranges::all_of(holders, [&](int number) { return number == holders.front(); });
}

std::vector<AxisSet> Holders::free_sets(AxisSet taken) const {
  std::vector<AxisSet> sets;
  for (AxisSet set = 0; set < independent_.size(); ++set) {
    if ((set & taken) == 0 && independent_[set | taken]) {
      sets.push_back(set);
    }
  }
  std::ranges::stable_sort(sets, {}, [](AxisSet set) { return std::popcount(set); });
  std::vector<AxisSet> different;
  for (const AxisSet set : sets) {
    if (std::ranges::none_of(different, [&](AxisSet other) { return tell_alike(set, other); })) {
      different.push_back(set);
    }
  }
  return different;
}

bool Holders::tell_alike(AxisSet left, AxisSet right) const {
  if (combinations(left) != combinations(right)) {
    return false;
  }
  std::map<int, int> place_on_right;
  for (std::size_t holder = 0; holder < count(); ++holder) {
    const int there = place(right, holder);
    if (place_on_right.try_emplace(place(left, holder), there).first->second != there) {
      return false;
    }
  }
  return true;
}

int Holders::place(AxisSet set, std::size_t holder) const {
  int number = 0;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if ((set >> axis & 1U) != 0) {
      number = number * axes_[axis].size + axes_[axis].coordinates[holder];
    }
  }
  return number;
}

int Holders::combinations(AxisSet set) const {
  int product = 1;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    product *= (set >> axis & 1U) != 0 ? axes_[axis].size : 1;
  }
  return product;
}

}  // namespace ttrace
