// The distance of two names, for messages that suggest the intended one.
#pragma once

#include <ttrace/export.h>

#include <cstddef>
#include <string_view>

namespace ttrace {

// Levenshtein distance: the fewest single-letter edits that make `from` into `to`.
[[nodiscard]] TTRACE_API std::size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace ttrace
