#include "analysis/reports/markdown_text.h"

namespace ttrace {

std::string markdown_text(std::string_view text) {
  constexpr std::string_view kSpecial = R"(\`*_[]<>|#~$)";
  std::string result;
  for (const char c : text) {
    if (kSpecial.find(c) != std::string_view::npos) {
      result += '\\';
    }
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

}  // namespace ttrace
