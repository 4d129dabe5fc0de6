// `ttrace explain`: all that a comparison knows of one tensor.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual explain_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_explain(const Arguments& arguments);

}  // namespace ttrace::cli
