#include "trace/base/precision.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// In "fp8" the operands of products are quantised to eight bits and everything else is BF16; in
// "fp8_f32", which checks the operators of the former, everything else is F32.
constexpr std::array kPrecisions = {
    Precision{"f64", ElementType::kF64, ElementType::kF64, "", true},
    Precision{"f32", ElementType::kF32, ElementType::kF32, "f64", true},
    Precision{"bf16", ElementType::kBF16, ElementType::kBF16, "f32", true},
    Precision{"f16", ElementType::kF16, ElementType::kF16, "f32", true},
    Precision{"fp8", ElementType::kBF16, ElementType::kE4M3, "fp8_f32", true},
    Precision{"fp8_f32", ElementType::kF32, ElementType::kE4M3, "", false},
};

}  // namespace

const Precision* find_precision(std::string_view text) {
  const auto* const found = std::ranges::find(kPrecisions, text, &Precision::text);
  return found == kPrecisions.end() ? nullptr : found;
}

const Precision& precision_of(std::string_view text) {
  const Precision* const found = find_precision(text);
  TTRACE_CHECK(found != nullptr,
               FormatError,
               "precision `",
               text,
               "` is unknown; write ",
               precision_names());
  return *found;
}

std::string precision_names() {
  std::string names;
  for (const Precision& precision : kPrecisions) {
    names.append(names.empty()                       ? ""
                 : &precision == &kPrecisions.back() ? " or "
                                                     : ", ")
        .append(precision.text);
  }
  return names;
}

std::vector<std::string> precisions_on_request() {
  std::vector<std::string> names;
  for (const Precision& precision : kPrecisions) {
    if (precision.on_request) {
      names.emplace_back(precision.text);
    }
  }
  return names;
}

}  // namespace ttrace
