// `ttrace rename`: writes a trace in the names of the other program.
#pragma once

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual rename_manual();
[[nodiscard]] int run_rename(const Arguments& arguments);

}  // namespace ttrace::cli
