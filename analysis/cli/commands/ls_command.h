// `ttrace ls`: which tensors a trace holds.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual ls_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_ls(const Arguments& arguments);

}  // namespace ttrace::cli
