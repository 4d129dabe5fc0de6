// Runs both programs of a check once more, with every operator of a module recorded, and names the
// first operator that round-off does not explain.
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/cli/commands/check_options.h"
#include "analysis/cli/commands/check_passes.h"
#include "analysis/findings/report.h"
#include "analysis/findings/zoom_report.h"
#include "trace/base/zoom_target.h"

#include <string>

namespace ttrace::cli {

// What a zoom of `module` looks into, or, where that is empty, one of the report's first
// divergence. Throws UsageError where there is nothing to zoom into.
[[nodiscard]] ZoomTarget target_of(const Report& report, const std::string& module);

// Runs the passes in RUN/zoom, whose earlier content is removed, and compares them. `options`: of
// the check, with commands for both programs. A failure is the result's `problem`. Throws
// Interrupted.
[[nodiscard]] ZoomReport zoom_into(const ZoomTarget& target,
                                   CheckOptions options,
                                   const std::string& run,
                                   Course& course);

}  // namespace ttrace::cli
