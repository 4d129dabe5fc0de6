// Text within Markdown.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// Text that a reader of Markdown shows as it is, in a table as well.
[[nodiscard]] std::string markdown_text(std::string_view text);

}  // namespace ttrace
