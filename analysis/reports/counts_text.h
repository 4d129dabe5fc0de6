// The last lines of a report for people: limits, coverage of noise, and how many tensors were
// judged.
//
// Thread-safety: a free function that only reads.
#pragma once

#include "analysis/findings/report.h"

#include <iosfwd>

namespace ttrace {

// One to three lines.
void write_counts(std::ostream& out, const Report& report);

}  // namespace ttrace
