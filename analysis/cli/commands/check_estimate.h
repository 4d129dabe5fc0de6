// `ttrace check --estimate`: how much a check would write.
#pragma once

#include "analysis/cli/commands/check_options.h"

namespace ttrace::cli {

// Counts what the reference would record, in a pass that keeps nothing, and prints what all passes
// need. Returns 0 if that much is free, else 2.
int run_estimate(const CheckOptions& options);

}  // namespace ttrace::cli
