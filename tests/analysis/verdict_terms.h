// Shorthands for what tests ask of verdicts and checks.
#pragma once

#include "analysis/findings/verdict.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttrace::testing {

// Throws where the question was not asked.
inline const Check& check_of(const TensorVerdict& tensor, Question question) {
  const Check* const check = tensor.find(question);
  if (check == nullptr) {
    throw std::out_of_range("nobody asked " + std::string(name_of(question)) + " of " +
                            to_string(tensor.id));
  }
  return *check;
}

// Error over the noise scale.
inline double q_of(const TensorVerdict& tensor) {
  return check_of(tensor, Question::kWhole).term(Term::kQ);
}

inline bool all_hold(const std::vector<Check>& checks) {
  return std::ranges::all_of(checks, &Check::holds);
}

// The sentence of the first check that fails; empty if all hold.
inline std::string first_sentence(const std::vector<Check>& checks) {
  const auto found = std::ranges::find(checks, false, &Check::holds);
  return found == checks.end() ? "" : found->sentence;
}

}  // namespace ttrace::testing
