#include "analysis/cli/commands/check_passes.h"

#include "analysis/align/machine.h"
#include "analysis/checks/routing_check.h"
#include "analysis/cli/commands/pass_plan.h"
#include "analysis/cli/commands/remembered_command.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/estimate.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/rename/rename.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/core.h>

namespace ttrace::cli {

namespace {

// Writes a pass of one side in the names of the other. Returns what is to be warned of. Requires:
// options.rename.
std::vector<std::string> rename_pass(const CheckOptions& options,
                                     const std::string& source,
                                     const std::string& target,
                                     RenameOptions how,
                                     Course& course) {
  how.progress = course.progress.counter("renaming");
  RenameResult result = rename_trace(source, target, *options.rename, how);
  course.progress.clear();
  return std::move(result.warnings);
}

bool is_self_checked(const CheckOptions& options, const ReferenceRun& run) {
  return options.self_check == SelfCheck::kAlways ||
         (options.self_check == SelfCheck::kWhereNeeded &&
          may_be_irreproducible(read_manifest(run.folder)));
}

void run_reference(const CheckOptions& options,
                   const RunDirectory& run,
                   const ReferenceRun& to,
                   Course& course) {
  course.reference += follow(reference_pass(options, run, to), options.limits, course);
  if (!options.stored) {
    remember_command(to.folder, options.rerun);
  }
  if (is_self_checked(options, to)) {
    ++course.passes;
    course.self_check += follow(self_check_pass(options, run, to), options.limits, course);
  }
  for (int seed = 1; seed <= options.noise; ++seed) {
    course.noise += follow(noise_pass(options, run, to, seed), options.limits, course);
  }
}

// Refuses a candidate that would fill the disk: its trace is at least as large as the reference's.
void check_space(const CheckOptions& options, const RunDirectory& run) {
  const std::uintmax_t needed = total(count_trace(run.reference())).bytes;
  const std::uintmax_t free = free_bytes(run.path());
  TTRACE_CHECK(options.ignore_space || needed <= free,
               UsageError,
               fmt::format("the candidate's trace needs at least {}, as much as the reference's, "
                           "but only {} are free in {}; free space there, choose another folder "
                           "for -o with --reference {}, or pass --ignore-space",
                           size_text(needed),
                           size_text(free),
                           run.path(),
                           stored_as(options, run)));
}

// Variables of the passes in which the reference's program reuses the candidate's values or
// choices.
void rename_candidate(const CheckOptions& options, const RunDirectory& run, Course& course) {
  rename_pass(options,
              run.candidate(),
              reference_side(options, run) + "/candidate",
              {.to = Names::kReference},
              course);
}

// Whether the reference must reuse the candidate's choices of experts to be comparable.
bool flips_experts(const RunDirectory& run) {
  try {
    return has_flips(read_routing(Trace::open(run.reference())),
                     read_routing(Trace::open(run.candidate())));
  } catch (const UsageError&) {
    return false;  // choices that make no whole: the comparison says so
  }
}

// Reference and noise passes once more with the candidate's choices of experts. What fails here
// costs sharpness, not the comparison.
void run_rerouted_passes(const CheckOptions& options, const RunDirectory& run, Course& course) {
  if (options.rerun.empty()) {
    log(LogLevel::kWarning,
        "the candidate chose other experts than the stored reference; pass --rerun COMMAND, so "
        "that the reference can run again with the candidate's choices");
    return;
  }
  CheckOptions again = options;
  if (options.stored) {
    again.noise = static_cast<int>(noise_files(options.reference).size());
  }
  course.passes += again.noise + 1;
  const std::string side = reference_side(options, run);
  try {
    run_reference(again, run, {rerouted_reference(side), side + "/candidate"}, course);
    if (options.rename) {
      const std::string followed = digest_of(read_routing(Trace::open(run.candidate())));
      rename_pass(
          options, rerouted_reference(side), run.rerouted(), {.forced_routing = followed}, course);
    }
    course.judged_by = run.rerouted();
  } catch (const UsageError& error) {
    course.progress.clear();
    log(LogLevel::kWarning,
        fmt::format("the reference could not run with the candidate's choices of experts, so "
                    "tensors that depend on them are not judged sharply: {}",
                    error.message()));
  }
}

// Runs the reference twice more, with the candidate's values after every module. If this fails, the
// comparison is less sharp, but still possible.
void run_forced_passes(const CheckOptions& options, const RunDirectory& run, Course& course) {
  const std::string native = read_manifest(run.reference()).precision;
  const Precision* const computed = find_precision(native);
  if (!options.forced || computed == nullptr || computed->wider.empty()) {
    return;
  }
  if (options.rerun.empty()) {
    log(LogLevel::kWarning,
        "operators are not checked one by one, because the stored reference does not say which "
        "command made it, or that command's folder is gone; pass --rerun COMMAND, or --no-forced "
        "to skip this check");
    return;
  }
  const auto pass = [&](const std::string& precision, const char* name, const std::string& folder) {
    course.forced +=
        follow(forced_pass(options, run, precision, name, folder), options.limits, course);
  };
  course.passes += 2;
  const std::string side = reference_side(options, run);
  try {
    pass(std::string(computed->wider), "forced-wide", forced_wide(side));
    pass(native, "forced-native", forced_native(side));
    if (options.rename) {
      rename_pass(options, forced_wide(side), forced_wide(run.path()), {}, course);
      rename_pass(options, forced_native(side), forced_native(run.path()), {}, course);
    }
  } catch (const UsageError& error) {
    course.progress.clear();
    log(LogLevel::kWarning,
        fmt::format("the reference could not run with the candidate's values, so operators are not "
                    "checked one by one: {}",
                    error.message()));
  }
}

// The reference in FP64, with the choices of experts of the reference that judges. What fails here
// costs a second opinion, not the comparison.
void run_golden_pass(const CheckOptions& options, const RunDirectory& run, Course& course) {
  if (!options.golden) {
    return;
  }
  if (read_manifest(run.reference()).precision == kGoldenPrecision) {
    log(LogLevel::kWarning, "--golden is ignored, because the reference already computes in f64");
    return;
  }
  if (options.rerun.empty()) {
    log(LogLevel::kWarning,
        "there is no golden pass, because the stored reference cannot run again; pass --rerun "
        "COMMAND");
    return;
  }
  const std::string folder = golden_pass(reference_side(options, run));
  const Pass pass = golden_pass_of(options, run, course.judged_by == run.rerouted());
  ++course.passes;
  try {
    course.golden = follow(pass, options.limits, course);
    if (options.rename) {
      rename_pass(options, folder, golden_pass(run.path()), {}, course);
    }
  } catch (const UsageError& error) {
    if (options.dyadic) {
      throw;  // nothing can be judged without it
    }
    course.progress.clear();
    log(LogLevel::kWarning,
        fmt::format(
            "the reference could not run in f64, so nothing is compared with a golden pass: {}",
            error.message()));
  }
}

}  // namespace

double follow(const Pass& pass, const PassLimits& limits, Course& course) {
  const std::string head = "[" + std::to_string(++course.pass) + "/" +
                           std::to_string(course.passes) + "] " + course.prefix + pass.name +
                           " ... ";
  const auto show = [&](double elapsed) { course.progress.show(head + seconds_text(elapsed)); };
  show(0.0);
  const double elapsed = run_pass(pass, limits, show);
  show(elapsed);
  course.progress.finish();
  return elapsed;
}

void run_passes(const CheckOptions& options, const RunDirectory& run, Course& course) {
  const NoteInterrupts noted;
  course.passes = options.stored ? 1 : options.noise + 2;
  const std::string reference = reference_side(options, run) + "/reference";
  if (options.stored) {
    run.use_stored(reference, options.reference);
  } else {
    run_reference(options, run, {reference}, course);
  }
  if (options.rename) {
    warn(rename_pass(options, reference, run.reference(), {}, course));
  }
  check_space(options, run);
  course.candidate = follow(candidate_pass(options, run), options.limits, course);
  remember_command(run.candidate(), options.candidate);
  // Sooner than the comparison would say so.
  require_same_products(read_manifest(run.reference()), read_manifest(run.candidate()));
  course.judged_by = run.reference();
  if (options.rename && !options.rerun.empty()) {
    rename_candidate(options, run, course);
  }
  if (flips_experts(run)) {
    run_rerouted_passes(options, run, course);
  }
  run_forced_passes(options, run, course);
  run_golden_pass(options, run, course);
}

}  // namespace ttrace::cli
