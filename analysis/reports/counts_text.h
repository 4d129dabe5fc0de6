// What a report says about its limits, the coverage of noise, and how many tensors were judged.
//
// Thread-safety: a free function that only reads.
#pragma once

#include "analysis/findings/report.h"

#include <iosfwd>
#include <string>

namespace ttrace {

// "shipped defaults, not calibrated for this program"
[[nodiscard]] std::string limits_text(const Report& report);

// One or two lines: how far noise reached, and how many tensors were judged in which way.
void write_counts(std::ostream& out, const Report& report);

}  // namespace ttrace
