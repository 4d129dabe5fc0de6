// The commands of the program, one per file of this folder: what each says about itself, with the
// function that runs it. These functions throw UsageError and FormatError, and those that run the
// user's programs throw Interrupted.
#pragma once

#include "analysis/cli/options/manual.h"

namespace ttrace::cli {

[[nodiscard]] Manual check_manual();
[[nodiscard]] Manual gate_manual();
[[nodiscard]] Manual diff_manual();
[[nodiscard]] Manual explain_manual();
[[nodiscard]] Manual same_manual();
[[nodiscard]] Manual laws_manual();
[[nodiscard]] Manual watch_manual();
[[nodiscard]] Manual zoom_manual();
[[nodiscard]] Manual calibrate_manual();
[[nodiscard]] Manual infer_manual();
[[nodiscard]] Manual ls_manual();
[[nodiscard]] Manual show_manual();
[[nodiscard]] Manual verify_manual();
[[nodiscard]] Manual timeline_manual();
[[nodiscard]] Manual merge_manual();
[[nodiscard]] Manual pack_manual();
[[nodiscard]] Manual rename_manual();
[[nodiscard]] Manual import_manual();
[[nodiscard]] Manual doctor_manual();
[[nodiscard]] Manual skill_manual();

}  // namespace ttrace::cli
