// `ttrace show`: one tensor of a trace.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual show_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_show(const Arguments& arguments);

}  // namespace ttrace::cli
