// How long a test waits for what never happens.
//
// Limits of time are for programs that hang. A test on a slow or busy machine is no failure, so
// that there is one limit, far above what the longest program takes there. Ctest's own limit
// (CMakePresets.json) is longer: what hangs within a test is named by the test.
#pragma once

#include <chrono>

namespace ttrace::testing {

inline constexpr std::chrono::seconds kHang{7200};

}  // namespace ttrace::testing
