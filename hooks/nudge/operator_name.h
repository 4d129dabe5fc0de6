// The parts of a dispatched operator's name.
//
// Thread-safety: free functions without state.
#pragma once

#include <algorithm>
#include <string_view>

namespace ttrace {

// "add_" of "aten::add_" and of "aten::_foreach_add_", the same operator over a list of tensors.
[[nodiscard]] constexpr std::string_view base_name(std::string_view name) {
  constexpr std::string_view kForEach = "_foreach_";
  const std::size_t colons = name.find("::");
  name.remove_prefix(colons == std::string_view::npos ? 0 : colons + 2);
  name.remove_prefix(name.starts_with(kForEach) ? kForEach.size() : 0);
  return name;
}

// Whether the operator of this full name sends data between ranks.
[[nodiscard]] constexpr bool communicates(std::string_view name) {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::");
}

template <class List>
[[nodiscard]] bool starts_with_one_of(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [name](std::string_view prefix) {
    return name.starts_with(prefix);
  });
}

}  // namespace ttrace
