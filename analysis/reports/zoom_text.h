// What a zoom found, for people.
//
// Thread-safety: a free function that only reads.
#pragma once

#include "analysis/findings/zoom_report.h"

#include <iosfwd>

namespace ttrace {

void write_zoom(std::ostream& out, const ZoomReport& zoom);

}  // namespace ttrace
