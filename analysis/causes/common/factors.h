// Numbers that a fitted factor may stand for: sizes of axes, micro-batches, tokens, head sizes,
// loss scales. They come from the candidate's layout, from the model that both manifests describe,
// and from the masks of tokens that both sides recorded. And the axes that a claim may be about.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"

#include <string>
#include <vector>

namespace ttrace {

struct Factor {
  double value = 1.0;
  std::string meaning;  // "1/tp", "sqrt(head size)"
};

// None of them 1.
[[nodiscard]] std::vector<Factor> meaningful_factors(const Evidence& evidence);

// "0.2500 +- 0.0003 = 1/tp", "2.000 +- 0 = dp or number of micro-batches", "6.554e+04 +- 2 = 2^16,
// a loss scale"; "1.300 +- 0.0002" where it means nothing; "0" alone.
//
// A number means what lies within 3 `deviation` of it, its standard error, or within 0.5 %: errors
// are not as independent as a standard error takes them to be. Of several meanings those that lie
// nearest are named.
[[nodiscard]] std::string explain_factor(const Evidence& evidence, double value, double deviation);

// Whether explain_factor() says what the factor means. 0 means nothing.
[[nodiscard]] bool has_meaning(const Evidence& evidence, double value, double deviation);

// The bits that a factor costs in a description: the choice among the numbers that mean something,
// or those of a fitted number.
[[nodiscard]] double bits_of_factor(const Evidence& evidence, double value, double deviation);

// The axes whose size, or one over whose size, `value` is; empty where it is none.
[[nodiscard]] std::vector<std::string> axes_in(const Evidence& evidence, double value);

// The axis whose size `value` is, within 1 %; empty where there is none.
[[nodiscard]] std::string axis_of_size(const Evidence& evidence, double value);

// All subsets of `axes` with one element or more, the smallest first.
[[nodiscard]] std::vector<std::vector<std::string>> subsets_of(
    const std::vector<std::string>& axes);

}  // namespace ttrace
