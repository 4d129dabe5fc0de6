// Random cases that the programs accept, the same for the same seed everywhere.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "fuzz_layouts/case.h"

#include <cstdint>

namespace ttrace::fuzz_layouts {

// Case number `index` of the run with `seed`. Each has one feature in turn, so that as many cases
// as there are features have all of them. `layer_dp`: each has layers that divide the ranks in a
// way of their own instead.
[[nodiscard]] Case generate(std::uint64_t seed,
                            int index,
                            const std::string& precision,
                            bool layer_dp = false);

}  // namespace ttrace::fuzz_layouts
