// The two programs to which a name may belong.
//
// Thread-safety: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace ttrace {

// The program that uses the names.
enum class Names : std::uint8_t { kReference, kCandidate };

[[nodiscard]] constexpr std::string_view name_of(Names names) {
  return names == Names::kReference ? "reference" : "candidate";
}
[[nodiscard]] constexpr Names other(Names names) {
  return names == Names::kReference ? Names::kCandidate : Names::kReference;
}

}  // namespace ttrace
