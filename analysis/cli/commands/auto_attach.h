// Programs that have no line of TTrace: what lets Python attach by itself.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/cli/commands/check_options.h"

#include <string>

namespace ttrace::cli {

// Lets the programs of a check run with `folder` first on PYTHONPATH. It gets a sitecustomize.py,
// which Python runs when it starts: the package ttrace.auto then finds the model and the optimizer.
// The command of a stored reference remembers its own folder. Throws FormatError where the file
// cannot be written.
void attach_by_itself(CheckOptions& options, const std::string& folder);

}  // namespace ttrace::cli
