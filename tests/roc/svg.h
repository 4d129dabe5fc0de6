// Pieces of the pictures that `ttrace_roc` draws.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace ttrace::roc {

[[nodiscard]] inline std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// `anchor`: start, middle or end of the text is at x.
[[nodiscard]] inline std::string text_at(double x,
                                         double y,
                                         std::string_view text,
                                         std::string_view anchor) {
  std::ostringstream out;
  out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">" << text
      << "</text>\n";
  return out.str();
}

}  // namespace ttrace::roc
