// `ttrace rename`: writes a trace in the names of the other program.
#pragma once

#include "command_line.h"
#include "manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual rename_manual();
[[nodiscard]] int run_rename(const Arguments& arguments);

}  // namespace ttrace::cli
