// `ttrace diff`: compares two stored traces.
#pragma once

#include "command_line.h"

namespace ttrace::cli {

// Returns the exit code. Throws UsageError and FormatError.
int run_diff(const Arguments& arguments);

}  // namespace ttrace::cli
