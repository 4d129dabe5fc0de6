// Runs the passes of a check: one after the other, but repetitions of the reference side by side.
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/cli/commands/check_options.h"
#include "analysis/cli/run/passes.h"
#include "analysis/cli/run/process_tree.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"

#include <cstdint>
#include <string>

namespace ttrace::cli {

// Wall time by class of pass, and the numbers of the progress line.
struct Course {
  ProgressLine progress;
  std::string prefix;  // of the names of passes
  int pass = 0;
  int passes = 0;
  double ran = 0.0;          // seconds of all passes that have ended
  std::uint64_t memory = 0;  // bytes that the reference's program took; 0: unknown
  double dry = 0.0;
  double reference = 0.0;
  double self_check = 0.0;
  double noise = 0.0;
  double candidate = 0.0;
  double forced = 0.0;
  double golden = 0.0;
  double comparison = 0.0;
  std::string judged_by;  // folder of the reference that the candidate is compared with
};

// Runs a pass and shows its progress; returns the seconds it took. `memory`: looks at what it
// takes. Throws as run_pass().
double follow(const Pass& pass,
              const PassLimits& limits,
              Course& course,
              TreeMemory* memory = nullptr);

// In this order: a dry step of the candidate, which shows its own errors first (not where the
// reference is stored); the reference (unless it is stored); the candidate; where its choices
// differ, the reference once more with these; self-check and noise passes of the reference that
// judges; the two forced passes, where the reference can run again and there is a higher precision;
// the golden pass, if it is asked for. Between programs of different names passes are renamed.
// Throws as run_pass(), and UsageError where the candidate's trace would not find space.
void run_passes(const CheckOptions& options, const RunDirectory& run, Course& course);

}  // namespace ttrace::cli
