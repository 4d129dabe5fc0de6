// The passes of a check: which program runs under which variables, one after the other.
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/align/step_range.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/run/passes.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/rename/rename_map.h"

#include <optional>
#include <string>

namespace ttrace::cli {

struct CheckOptions {
  std::string reference;  // a command, or the folder of a stored trace
  bool stored = false;    // it is a folder
  std::string candidate;
  std::string rerun;   // command of a stored reference; empty: cannot be run again
  std::string output;  // empty: runs/N
  int noise = 5;
  bool noise_given = false;
  std::optional<StepRange> steps;
  std::string precision;  // empty: not asked
  std::string start;
  PassLimits limits;
  std::optional<RenameMap> rename = {};  // the programs' modules have different names
  bool estimate = false;
  bool ignore_space = false;
  bool collectives = false;
  bool forced = true;   // check every operator on its own
  bool golden = false;  // hold both against the reference in FP64
  bool dyadic = false;  // give all modules small integers, and demand equality where these suffice
  ReportOptions report;
  DiffOptions judging;
};

// Wall time by class of pass, and the numbers of the progress line.
struct Course {
  ProgressLine progress;
  int pass = 0;
  int passes = 0;
  double reference = 0.0;
  double noise = 0.0;
  double candidate = 0.0;
  double forced = 0.0;
  double golden = 0.0;
  double comparison = 0.0;
  std::string judged_by;  // folder of the reference that the candidate is compared with
};

// Runs a pass and shows its progress; returns the seconds it took. Throws as run_pass().
double follow(const Pass& pass, const PassLimits& limits, Course& course);

// The variables that every pass of a kind has.
[[nodiscard]] Variables variables(const CheckOptions& options, const std::string& pass);

// Reference and noise passes (not of a stored reference), candidate, and where that chose other
// experts, reference and noise passes that use these; then the two forced passes, where the
// reference can be run again and there is a higher precision. Between programs of different
// names passes are renamed. Throws as run_pass(), and UsageError
// where the candidate's trace would not find space.
void run_passes(const CheckOptions& options, const RunDirectory& run, Course& course);

}  // namespace ttrace::cli
