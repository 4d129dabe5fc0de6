// The two programs to which a name may belong.
//
// Thread-safety: plain values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>

namespace ttrace {

// The program that uses the names.
enum class Names : std::uint8_t { kReference, kCandidate };
inline constexpr std::array kBothNames = {Names::kReference, Names::kCandidate};

[[nodiscard]] constexpr std::string_view name_of(Names names) {
  return names == Names::kReference ? "reference" : "candidate";
}
[[nodiscard]] constexpr Names other(Names names) {
  return names == Names::kReference ? Names::kCandidate : Names::kReference;
}

// One of each program.
template <class Value>
struct Both {
  Value reference = {};
  Value candidate = {};

  [[nodiscard]] const Value& of(Names names) const {
    return names == Names::kReference ? reference : candidate;
  }
  [[nodiscard]] Value& of(Names names) {
    return names == Names::kReference ? reference : candidate;
  }
  auto operator<=>(const Both&) const = default;
};

}  // namespace ttrace
