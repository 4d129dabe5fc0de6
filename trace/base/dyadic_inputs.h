// How a manifest says that modules were given made-up values in place of their own
// (TTRACE_INPUTS=dyadic): its `data` has kInputsKey = kDyadicInputs, so that such a trace compares
// with its like only.
#pragma once

namespace ttrace {

inline constexpr auto kInputsKey = "inputs";
inline constexpr auto kDyadicInputs = "dyadic";

}  // namespace ttrace
