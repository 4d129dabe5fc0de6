// `ttrace calibrate`: limits for a program of one's own, from runs known to be right.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual calibrate_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_calibrate(const Arguments& arguments);

}  // namespace ttrace::cli
