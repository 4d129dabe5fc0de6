// All enumerators of an enumeration, as the compiler knows them, so that a test misses none.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace::testing {

template <class Enum>
struct Enumerator {
  Enum value;
  std::string name;  // "wrong_view" of kWrongView
};

// "... value = ttrace::Signature::kWrongView]", or "... value = (ttrace::Signature)77]" of a number
// that no enumerator has.
template <auto value>
constexpr std::string_view spelled_with_value() {
  return __PRETTY_FUNCTION__;
}

inline std::string in_snake_case(std::string_view camel) {
  std::string text;
  for (const char letter : camel) {
    const auto byte = static_cast<unsigned char>(letter);
    text += std::isupper(byte) != 0 && !text.empty() ? "_" : "";
    text += static_cast<char>(std::tolower(byte));
  }
  return text;
}

// Enumerators of up to 64 values from 0 on.
template <class Enum>
std::vector<Enumerator<Enum>> enumerators_of() {
  std::vector<Enumerator<Enum>> result;
  const auto add_if_named = [&](Enum value, std::string_view text) {
    const std::size_t start = text.rfind("::k");
    if (start != std::string_view::npos && text.rfind(')') < start) {
      const std::size_t name = start + 3;
      result.push_back(
          {value, in_snake_case(text.substr(name, text.find_first_of(";]", name) - name))});
    }
  };
  [&]<std::size_t... number>(std::index_sequence<number...>) {
    (add_if_named(static_cast<Enum>(number), spelled_with_value<static_cast<Enum>(number)>()), ...);
  }
  (std::make_index_sequence<64>());
  return result;
}

}  // namespace ttrace::testing
