// Lines that end where a terminal does.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ttrace {

// Breaks `text` between words, so that no line is longer than `width`; 0: never. The first line
// begins at column `indent`, and the others are indented by it. A word that is too long stays
// whole.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace ttrace
