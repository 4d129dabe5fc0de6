// `ttrace check`: runs reference, noise passes and candidate, then compares.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual check_manual();
// Returns the exit code. Throws UsageError, FormatError and Interrupted.
int run_check(const Arguments& arguments);

}  // namespace ttrace::cli
