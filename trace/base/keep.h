// How much of a tensor a trace keeps.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// The numbers are part of the file format.
enum class Keep : std::uint8_t {
  kBytes = 0,   // all elements
  kSketch = 1,  // some thousand sums that stand for them, see trace/sums/sketch.h
};

// "bytes", "sketch".
[[nodiscard]] std::string_view name_of(Keep keep);
// Inverse of name_of(); nothing for any other name.
[[nodiscard]] std::optional<Keep> find_keep(std::string_view name);

}  // namespace ttrace
