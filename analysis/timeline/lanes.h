// Lanes of a timeline: slices of one lane contain each other or do not overlap, because a viewer
// draws what lies inside as deeper.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

struct Slice {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string module;  // contains modules below it; empty: contains nothing
};

// The lane of every slice, from 0. A slice stands below another one only where it lies within it in
// time and in the model; otherwise it gets the first lane that is free.
[[nodiscard]] std::vector<std::size_t> lanes_of(const std::vector<Slice>& slices);

}  // namespace ttrace
