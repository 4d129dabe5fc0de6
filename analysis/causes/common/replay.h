// A formula computed again from recorded operands, and its variants.
//
// The variant that makes the reference's tensor from the reference's operands says what is right;
// the variant that makes the candidate's tensor from the candidate's operands says what it did
// instead.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include "analysis/causes/common/hypothesis.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// One variant, at the places that are looked at.
using Variant = std::function<std::vector<double>(WhichRun)>;

// What was recorded at the places that are looked at: all elements, or a sample of them.
struct Replay {
  std::vector<double> reference;
  std::vector<double> candidate;
  std::vector<Variant> variants;
};

// Another variant that makes the candidate's tensor.
struct Replayed {
  std::size_t right = 0;  // the variant that makes the reference's
  std::size_t other = 0;
  double clean = 0.0;   // what the right one leaves of the reference, which is its round-off
  double before = 0.0;  // what the right one leaves of the candidate
  double rest = 0.0;    // what the other one leaves of the candidate

  // One of `choices`: "`what`; computed again from the candidate's own `operands`, which leaves
  // ...".
  [[nodiscard]] Hypothesis hypothesis(Signature signature,
                                      std::size_t choices,
                                      const std::string& what,
                                      const std::string& operands) const;
};

// The variant that leaves least of the reference, where it reproduces it, and what it leaves.
struct Reproduced {
  std::size_t variant = 0;
  double rest = 0.0;
};
[[nodiscard]] std::optional<Reproduced> reproduce(const Replay& replay);

// All other variants that make the candidate's tensor, the nearest first; none where `right` does,
// or where nothing is right.
[[nodiscard]] std::vector<Replayed> other_variants(const Evidence& evidence,
                                                   const Replay& replay,
                                                   const std::optional<Reproduced>& right);

// Every `stride`th row of a matrix.
[[nodiscard]] std::vector<double> rows_of(const Values& matrix, std::size_t stride);

// Those rows of g' x, the gradient [out, in] of a linear's weight, for the gradient g [rows, out]
// of its output and its input x [rows, in]; empty where their rows are not as many.
[[nodiscard]] std::vector<double> weight_gradient(const Values& g,
                                                  const Values& x,
                                                  std::size_t stride = 1);

}  // namespace ttrace
