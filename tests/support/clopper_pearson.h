// An upper limit for the rate of an event that few or no trials showed.
//
// Source: Clopper and Pearson, Biometrika 26 (1934); computed by Boost.Math from the beta
// distribution.
#pragma once

namespace ttrace::testing {

// Upper end of the two-sided interval that covers the true rate with probability `confidence` or
// more; 1 without any trial. Requires: 0 <= events <= trials.
[[nodiscard]] double clopper_pearson_upper(int events, int trials, double confidence = 0.95);

}  // namespace ttrace::testing
