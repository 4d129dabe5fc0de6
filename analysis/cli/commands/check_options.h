// What a user asks of `ttrace check`.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/align/step_range.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/run/passes.h"
#include "analysis/diff.h"
#include "analysis/rename/rename_map.h"
#include "trace/base/keep.h"
#include "trace/base/zoom_target.h"

#include <optional>
#include <string>

namespace ttrace::cli {

// Whether the reference runs a second time without noise, which shows what it does not reproduce by
// itself. Unasked, it does where it ran on an accelerator without deterministic algorithms.
enum class SelfCheck { kWhereNeeded, kAlways, kNever };

struct CheckOptions {
  std::string reference;  // a command, or the folder of a stored trace
  bool stored = false;    // it is a folder
  std::string candidate;
  std::string rerun;  // command of a stored reference; empty: cannot be run again
  bool rerun_given = false;
  bool automatic = false;  // the programs have no line of TTrace
  bool inference = false;  // and train nothing: every call of the model is a step
  std::string output;      // empty: runs/N
  int noise = 5;
  bool noise_given = false;
  std::optional<StepRange> steps;
  std::string precision;  // empty: not asked
  std::string start;
  PassLimits limits;
  std::optional<RenameMap> rename = {};  // the programs' modules have different names
  // What a trace keeps of a tensor (TTRACE_KEEP); nothing: as the programs' environment says.
  std::optional<Keep> keep = {};
  std::string elements = {};  // and of which it keeps elements (TTRACE_ELEMENTS); empty: likewise
  bool estimate = false;
  bool ignore_space = false;
  bool zooms = false;                   // look into the module of the first divergence
  std::optional<ZoomTarget> zoom = {};  // these are the passes that do
  bool collectives = false;
  SelfCheck self_check = SelfCheck::kWhereNeeded;
  bool forced = true;   // check every operator on its own
  bool golden = false;  // hold both against the reference in FP64
  bool dyadic = false;  // give all modules small integers, and demand equality where these suffice
  ReportOptions report;
  DiffOptions judging;
  std::string keeper = {};  // Pass::keeper of the reference's passes
};

}  // namespace ttrace::cli
