// `ttrace merge`: the logical tensors of a trace in one file.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual merge_manual();
// Returns the exit code. Throws UsageError and FormatError.
int run_merge(const Arguments& arguments);

}  // namespace ttrace::cli
