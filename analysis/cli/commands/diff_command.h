// `ttrace diff`: compares two stored traces.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual diff_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_diff(const Arguments& arguments);

}  // namespace ttrace::cli
