// The FP8 or FP4 codes of an operand on both sides; codes_check.h gets them back from values and
// scales.
#pragma once

#include <ttrace/element_type.h>

#include <cstdint>
#include <string>

namespace ttrace {

// Codes of an operand on one side.
struct SideCodes {
  ElementType format = ElementType::kE4M3;  // or kE5M2, kE2M1
  std::int64_t saturated = 0;               // at the largest number of the format
  std::int64_t zero = 0;
};

struct CodesComparison {
  std::int64_t elements = 0;
  std::int64_t equal = 0;  // in bits, powers of two between scales taken out; 0: other formats
  SideCodes reference;
  SideCodes candidate;
  std::int64_t scales = 0;
  std::int64_t multiples = 0;      // scales that are 2^k times the reference's, k not 0
  bool are_powers_of_two = false;  // all scales are the reference's times 2^k, 0 included
};

// "E4M3", "E5M2", "E2M1".
[[nodiscard]] std::string format_text(ElementType format);

// "E4M3 codes: 3 of 4096 saturated and 10 zero, in the reference 1 and 10; 99.2 % equal in bits".
[[nodiscard]] std::string codes_text(const CodesComparison& codes);

}  // namespace ttrace
