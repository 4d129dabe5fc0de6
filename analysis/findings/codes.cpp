#include "analysis/findings/codes.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace ttrace {

std::string format_text(ElementType format) {
  std::string text(name_of(format));
  std::ranges::transform(text, text.begin(), [](char c) { return std::toupper(c); });
  return text;
}

std::string codes_text(const CodesComparison& codes) {
  const auto counts = [&](const SideCodes& side) {
    return fmt::format("{} of {} saturated and {} zero", side.saturated, codes.elements, side.zero);
  };
  const double equal = static_cast<double>(codes.equal) / static_cast<double>(codes.elements);
  const bool comparable = codes.reference.format == codes.candidate.format;
  return fmt::format("{} codes: {}; in the reference, {}{}{}",
                     format_text(codes.candidate.format),
                     counts(codes.candidate),
                     comparable ? "" : format_text(codes.reference.format) + " codes: ",
                     counts(codes.reference),
                     comparable ? fmt::format("; {} % are equal in bits",
                                              short_number(std::floor(1000.0 * equal) / 10.0))
                                : "");
}

}  // namespace ttrace
