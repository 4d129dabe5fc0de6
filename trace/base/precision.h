// The precisions in which programs compute: one row for each precision that a manifest, --precision
// or TTRACE_PRECISION can name.
//
// Thread-safety: constants and free functions without shared state.
#pragma once

#include <ttrace/element_type.h>

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct Precision {
  std::string_view text;   // "bf16"
  ElementType stored;      // what parameters and activations are kept in
  ElementType coarsest;    // the coarsest type that values are rounded to
  std::string_view wider;  // in which a pass checks operators, so that its own errors do not count;
                           // empty if there is nothing wider
  bool on_request;         // --precision takes it; the others are for the passes of a check alone
};

// The precision of the golden pass, which stands in for the truth.
inline constexpr std::string_view kGoldenPrecision = "f64";
// The precision of dyadic passes: sums of small integers are exact in it.
inline constexpr std::string_view kDyadicPrecision = "f32";

// Whether the operands of products are kept in eight bits.
[[nodiscard]] constexpr bool quantises_operands(const Precision& precision) {
  return precision.coarsest != precision.stored;
}

// Null for an unknown name.
[[nodiscard]] const Precision* find_precision(std::string_view text);
// Throws FormatError that lists all names.
[[nodiscard]] const Precision& precision_of(std::string_view text);

// "f64, f32, bf16, f16, fp8 or fp8_f32".
[[nodiscard]] std::string precision_names();
// Those that --precision takes.
[[nodiscard]] std::vector<std::string> precisions_on_request();

}  // namespace ttrace
