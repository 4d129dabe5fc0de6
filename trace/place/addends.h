// How the addends of a sum over axes are numbered: like the coordinates, the first axis slowest.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <ttrace/layout.h>
#include <ttrace/placement.h>

#include <string>
#include <string_view>

namespace ttrace {

// Makes the placement one addend of a sum over this axis, beside what it is a sum over already.
void sum_over(Placement& placement, const Layout& layout, std::string_view axis);

// The number of a rank's addend in a sum over "dp,cp"; 0 where no axis is named.
[[nodiscard]] int addend_number(const Layout& layout, const std::string& axes);

}  // namespace ttrace
