// A law: what a tensor must be, given other tensors of the same trace (law_check.h).
//
// Thread-safety: plain values and free functions.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

enum class LawKind : std::uint8_t {
  kOutput,
  kInputGradient,
  kWeightGradient,
  kReducedGradient,
  kGradientNorm,
  kCopies
};

// "output", "input gradient", "weight gradient", "reduced gradient", "gradient norm", "copies".
[[nodiscard]] std::string_view name_of(LawKind kind);
// "input x weight".
[[nodiscard]] std::string_view formula_of(LawKind kind);

inline constexpr double kLawLimit = 4.0;  // of R, without a reference

// A law at one tensor.
struct Law {
  LawKind kind = LawKind::kOutput;
  TensorId result;        // of what it speaks
  double residual = 0.0;  // estimates ||result - what it should be||
  double scale = 0.0;     // round-off
  double norm = 0.0;      // ||result||
  double factor = 1.0;    // of a reduced gradient: a
  double limit = kLawLimit;
  std::vector<int> ranks = {};  // of copies: those that differ from the lowest one, and that one

  // R; Inf of an error where nothing rounds.
  [[nodiscard]] double value() const;
  [[nodiscard]] bool holds() const { return !(value() > limit); }
};

// "it is not input x weight: wrong by 377 times what round-off explains (limit 4)". Of a broken
// one.
[[nodiscard]] std::string sentence_of(const Law& law);

}  // namespace ttrace
