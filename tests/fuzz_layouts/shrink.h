// The simplest case that still fails: greedy delta debugging over the fields of a case.
//
// Source: Zeller and Hildebrandt, IEEE TSE 28 (2002), one element at a time because fields are few.
// Thread-safety: free function without shared state.
#pragma once

#include "fuzz_layouts/case.h"

#include <functional>

namespace ttrace::fuzz_layouts {

// Sets field after field to its simplest value, or to the simplest choice below its own, as long as
// the case can exist and `fails`; begins again until nothing changes or `fails` was asked `tries`
// times. `failing` fails and need not be asked.
[[nodiscard]] Case shrink(const Case& failing,
                          const std::function<bool(const Case&)>& fails,
                          int tries);

}  // namespace ttrace::fuzz_layouts
