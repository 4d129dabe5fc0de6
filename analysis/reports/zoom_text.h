// What a zoom found, for people and for programs.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/findings/json_text.h"
#include "analysis/findings/zoom_report.h"

#include <iosfwd>
#include <optional>

namespace ttrace {

void write_zoom(std::ostream& out, const ZoomReport& zoom);

// Null without a zoom.
[[nodiscard]] Json zoom_json(const std::optional<ZoomReport>& zoom);

}  // namespace ttrace
