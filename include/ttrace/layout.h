// The named axes of a parallel run and this rank's coordinate on each.
//
//   ttrace::Layout layout;
//   layout.rank = 3;
//   layout.world_size = 4;
//   layout.add("tp", 2, 1).add("dp", 2, 1);
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// A program chooses the names; "tp", "sp", "cp", "pp", "dp" and "ep" are the usual ones.
struct Axis {
  std::string name;
  int size = 1;
  int coordinate = 0;  // of this rank, in [0, size)
  std::string
      follows;  // the axis whose coordinate this one always has ("sp" follows "tp"); or empty

  bool operator==(const Axis&) const = default;
};

// A default Layout is one device.
struct Layout {
  int rank = 0;
  int world_size = 1;
  std::vector<Axis> axes;

  // Adds an axis and returns *this. Throws UsageError for a missing or repeated name, for a
  // coordinate outside [0, size), and for an axis that follows one that was not added before or
  // that has another size or coordinate.
  Layout& add(std::string name, int size, int coordinate, std::string follows = "");

  // Size of the axis with this name, and this rank's coordinate on it. They are 1 and 0 for an axis
  // that the run does not have.
  [[nodiscard]] int size(std::string_view axis) const;
  [[nodiscard]] int coordinate(std::string_view axis) const;

  bool operator==(const Layout&) const = default;
};

// "tp 2, dp 2" without axes of size 1; "one device" where nothing is left.
[[nodiscard]] std::string to_string(const Layout& layout);

}  // namespace ttrace
