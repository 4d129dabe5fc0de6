// The named axes of a parallel run and where one rank stands on them.
#pragma once

#include <ttrace/export.h>

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Names are free; "tp", "sp", "cp", "pp", "dp", "ep" are the usual ones.
struct TTRACE_API Axis {
  std::string name;
  int size = 1;
  int coordinate = 0;   // of this rank, in [0, size)
  std::string follows;  // name of the axis this one always equals ("sp" follows "tp"), or empty

  bool operator==(const Axis&) const = default;
};

// A value: axes of the run plus this rank's coordinates. A default Layout is one device.
struct TTRACE_API Layout {
  int rank = 0;
  int world_size = 1;
  std::vector<Axis> axes;

  // Returns *this. Throws UsageError for a repeated name or a coordinate outside [0, size).
  Layout& add(std::string name, int size, int coordinate, std::string follows = "");

  // 1 and 0 for an axis that the run does not have.
  [[nodiscard]] int size(std::string_view axis) const;
  [[nodiscard]] int coordinate(std::string_view axis) const;

  bool operator==(const Layout&) const = default;
};

// "tp 2, dp 2" without axes of size 1; "one device" where nothing is left.
[[nodiscard]] TTRACE_API std::string to_string(const Layout& layout);

}  // namespace ttrace
