// How much of a tensor a trace keeps.
//
// Thread-safety: values, and free functions without shared state.
#pragma once

#include "trace/base/pattern.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// The numbers are part of the file format.
enum class Keep : std::uint8_t {
  kBytes = 0,   // all elements
  kSketch = 1,  // some thousand sums that stand for them, see trace/sums/sketch.h
};

// What is kept of tensors that can be sketched (trace_writer.h).
struct Keeping {
  Keep keep = Keep::kBytes;
  std::optional<Pattern> elements = {};  // of tensors in whose id it occurs, bytes

  [[nodiscard]] Keep of(const std::string& id) const {
    return elements && elements->found_in(id) ? Keep::kBytes : keep;
  }
};

// "bytes", "sketch".
[[nodiscard]] std::string_view name_of(Keep keep);
// Inverse of name_of(); nothing for any other name.
[[nodiscard]] std::optional<Keep> find_keep(std::string_view name);

}  // namespace ttrace
