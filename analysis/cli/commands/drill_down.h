// `ttrace check` with TTRACE_KEEP=sketch: sketches say whether something is beyond its bound; which
// operator it is, and why, is asked of elements, in a second run of both programs that keeps those
// of the tensors around the first divergence.
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/cli/commands/check_options.h"
#include "analysis/cli/commands/check_passes.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/findings/report.h"

#include <string>

namespace ttrace::cli {

// Of the passes that `options` ask for, those that come first: where sketches are kept, none that
// needs elements.
[[nodiscard]] CheckOptions first_passes(CheckOptions options);

struct DrilledDown {
  Report report;
  std::string run;  // the folder of the traces that it compares
};

// Runs all passes again in RUN/bytes, the forced ones too, and compares these. Elements are kept of
// small tensors, as before, and of at most 64 large ones: those of the modules that ran nearest to
// the first divergence. Requires: `sketched`, the report of RUN, diverged. Returns it with a remark
// where this is not possible. Throws Interrupted.
[[nodiscard]] DrilledDown drill_down(CheckOptions options,
                                     const RunDirectory& run,
                                     Report sketched,
                                     Course& course);

}  // namespace ttrace::cli
