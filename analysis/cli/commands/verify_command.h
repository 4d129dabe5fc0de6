// `ttrace verify`: whether a stored trace is sound.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual verify_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_verify(const Arguments& arguments);

}  // namespace ttrace::cli
