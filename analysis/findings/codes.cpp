#include "analysis/findings/codes.h"

#include "analysis/findings/wording.h"

#include <cmath>

namespace ttrace {

std::string format_text(ElementType format) {
  return format == ElementType::kE4M3 ? "E4M3" : "E5M2";
}

std::string codes_text(const CodesComparison& codes) {
  const auto counts = [](const SideCodes& side, const std::string& of_all) {
    return std::to_string(side.saturated) + of_all + " saturated and " + std::to_string(side.zero) +
           " zero";
  };
  const std::string all = " of " + std::to_string(codes.elements);
  const std::string format = format_text(codes.candidate.format) + " codes: ";
  if (codes.reference.format != codes.candidate.format) {
    return format + counts(codes.candidate, all) + ", in the reference " +
           format_text(codes.reference.format) + " codes: " + counts(codes.reference, "");
  }
  const double equal = static_cast<double>(codes.equal) / static_cast<double>(codes.elements);
  return format + counts(codes.candidate, all) + ", in the reference " +
         std::to_string(codes.reference.saturated) + " and " +
         std::to_string(codes.reference.zero) + "; " +
         short_number(std::floor(1000.0 * equal) / 10.0) + " % equal in bits";
}

}  // namespace ttrace
