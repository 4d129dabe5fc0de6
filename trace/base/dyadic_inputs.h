// The mark of a manifest whose modules got made-up values instead of their own
// (TTRACE_INPUTS=dyadic): its `data` has kInputsKey = kDyadicInputs, so such a trace can be
// compared only with another one of its kind.
#pragma once

namespace ttrace {

inline constexpr auto kInputsKey = "inputs";
inline constexpr auto kDyadicInputs = "dyadic";

}  // namespace ttrace
