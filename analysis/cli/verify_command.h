// `ttrace verify`: whether a stored trace is sound.
#pragma once

#include "command_line.h"
#include "manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual verify_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_verify(const Arguments& arguments);

}  // namespace ttrace::cli
