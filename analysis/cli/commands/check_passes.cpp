#include "analysis/cli/commands/check_passes.h"

#include "analysis/align/machine.h"
#include "analysis/checks/draw_check.h"
#include "analysis/checks/routing_check.h"
#include "analysis/checks/unjudged.h"
#include "analysis/cli/commands/pass_plan.h"
#include "analysis/cli/commands/remembered_command.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/estimate.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/keeper.h"
#include "analysis/cli/run/side_by_side.h"
#include "analysis/infer/settle.h"
#include "analysis/rename/rename.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/draws.h"
#include "trace/merge/noise_of_ranks.h"
#include "trace/merge/routing.h"
#include "trace/samples/align_samples.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <unistd.h>
#include <vector>

namespace ttrace::cli {

namespace {

// A forced pass holds a second trace, and one of them computes in twice as wide a type.
constexpr double kMoreMemory = 2.5;
constexpr int kFewPasses = 2;  // whose time says little of others

// "[3/10] noise 1 of 5 ... 4.2 s"
std::string line_of(const Course& course, const std::string& what, double elapsed) {
  return fmt::format("[{}/{}] {}{} ... {}",
                     course.pass,
                     course.passes,
                     course.prefix,
                     what,
                     seconds_text(elapsed));
}

// ", about 30 s left"; empty where nothing tells, or it is nearly over.
std::string time_left(const Course& course, double elapsed) {
  const int finished = course.pass - 1;
  if (finished < kFewPasses) {
    return "";
  }
  const double left = course.ran / finished * (course.passes - finished) - elapsed;
  return left < 1.0 ? "" : fmt::format(", about {:.0f} s left", left);
}

// While a pass, or several, run.
void show_line(const std::string& what, double elapsed, Course& course) {
  course.progress.show_rarely(line_of(course, what, elapsed) + time_left(course, elapsed));
}

// The line of a pass that has ended, which stays.
void finish_line(const std::string& what, double elapsed, Course& course) {
  course.progress.show(line_of(course, what, elapsed));
  course.progress.finish();
}

// How many passes of the reference's program may run at the same time.
std::size_t jobs_of(const CheckOptions& options, const std::string& reference) {
  return options.limits.jobs > 0 ? options.limits.jobs
                                 : default_at_a_time(read_manifest(reference), 1);
}

// In a process of its own: the exit code says how it ended. What fails is run again, and says why.
int run_apart(const Pass& pass, const PassLimits& limits) {
  try {
    run_pass(pass, limits, [](double) {});
    return 0;
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const std::exception&) {
    return 2;
  }
}

// Runs these passes at the same time, as far as the memory allows it. Returns those that failed.
std::vector<std::size_t> follow_together(const std::vector<Pass>& passes,
                                         const CheckOptions& options,
                                         std::size_t jobs,
                                         Course& course) {
  std::vector<Task> tasks;
  for (const Pass& pass : passes) {
    tasks.push_back(
        {.name = pass.name,
         .work = [&] { return run_apart(pass, options.limits); },
         .output = "/dev/null",
         .errors = "/dev/null",
         .memory = static_cast<std::uint64_t>(kMoreMemory * static_cast<double>(course.memory))});
  }
  std::vector<std::size_t> failed;
  const double before = course.ran;
  double seconds = 0.0;
  const auto ended = [&](std::size_t task, const TaskEnd& end) {
    if (end.exit_code != 0) {
      failed.push_back(task);
      return;
    }
    course.ran = before + seconds;
    finish_line(tasks[task].name, end.seconds, course);
    ++course.pass;
  };
  const auto tick = [&](const std::string& names, double elapsed) {
    seconds = elapsed;
    show_line(names, elapsed, course);
  };
  ++course.pass;
  run_side_by_side(tasks, {.at_a_time = jobs, .wanted = nullptr, .ended = ended, .tick = tick});
  --course.pass;
  course.ran = before + seconds;
  std::ranges::sort(failed);
  return failed;
}

// Several passes of the reference's program, side by side where --jobs and the memory allow it. One
// that fails beside others, with which it may share a port or a file, runs once more alone. Returns
// the seconds of all.
double follow_all(const std::vector<Pass>& passes,
                  const CheckOptions& options,
                  std::size_t jobs,
                  Course& course) {
  const double before = course.ran;
  std::vector<std::size_t> alone(passes.size());
  std::iota(alone.begin(), alone.end(), std::size_t{0});
  if (jobs > 1 && passes.size() > 1) {
    alone = follow_together(passes, options, jobs, course);
  }
  for (const std::size_t i : alone) {
    forget_failure(passes[i]);
  }
  for (const std::size_t i : alone) {
    follow(passes[i], options.limits, course);
  }
  return course.ran - before;
}

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

// A stored reference shows that its program runs, and a zoom that both do; the reference itself as
// candidate shows its errors in its own pass.
bool is_tried_dry(const CheckOptions& options) {
  return !options.stored && !options.zoom && options.candidate != options.reference;
}

// Whether the forced passes can run, as far as `precision`, the reference's, is known.
bool is_forced(const CheckOptions& options, const std::string& precision) {
  const Precision* const computed = find_precision(precision);
  return options.forced && !options.rerun.empty() &&
         (precision.empty() || (computed != nullptr && !computed->wider.empty()));
}

bool is_golden(const CheckOptions& options, const std::string& precision) {
  return options.golden && !options.rerun.empty() && precision != kGoldenPrecision;
}

// Noise passes that this reference has not got yet.
int missing_noise(const CheckOptions& options, const std::string& folder) {
  int missing = 0;
  for (int seed = 1; seed <= options.noise; ++seed) {
    missing += std::filesystem::exists(noise_file(folder, seed)) ? 0 : 1;
  }
  return missing;
}

// All passes that are certain before the first one has run.
int planned_passes(const CheckOptions& options) {
  const int noise = options.stored ? missing_noise(options, options.reference) : options.noise;
  return (is_tried_dry(options) ? 1 : 0) + (options.stored ? 0 : 1) + 1 + noise +
         (is_forced(options, options.precision) ? 2 : 0) +
         (is_golden(options, options.precision) ? 1 : 0);
}

void run_dry(const CheckOptions& options, const RunDirectory& run, Course& course) {
  const Pass pass = dry_pass(options, run);
  course.dry = follow(pass, options.limits, course);
  std::filesystem::remove_all(pass.trace);
}

// Whether only a second run without noise shows if noise, or the program itself, moved so much.
bool needs_self_check(const CheckOptions& options, const ReferenceRun& run) {
  return options.self_check == SelfCheck::kWhereNeeded && !is_self_checked(options, run) &&
         noise_exceeds_tensors(Trace::open(run.folder));
}

void run_reference(const CheckOptions& options,
                   const RunDirectory& run,
                   const ReferenceRun& to,
                   Course& course) {
  TreeMemory memory;
  course.reference += follow(reference_pass(options, run, to), options.limits, course, &memory);
  course.memory = std::max(course.memory, memory.most());
  if (!options.stored) {
    remember_command(to.folder, options.rerun, options.noise, course.memory);
  }
}

// The self-check and the noise passes that a reference has not got yet.
void run_repetitions(const CheckOptions& options,
                     const RunDirectory& run,
                     const ReferenceRun& of,
                     Course& course) {
  const bool is_whole = missing_noise(options, of.folder) == 0;
  if (options.stored && of.candidate.empty() && is_whole) {
    return;
  }
  if (is_self_checked(options, of) && !read_self_check(of.folder)) {
    ++course.passes;
    course.self_check += follow(self_check_pass(options, run, of), options.limits, course);
  }
  std::vector<Pass> passes;
  for (int seed = 1; seed <= options.noise; ++seed) {
    if (!std::filesystem::exists(noise_file(of.folder, seed))) {
      passes.push_back(noise_pass(options, run, of, seed));
    }
  }
  course.noise += follow_all(passes, options, jobs_of(options, of.folder), course);
  write_noise_of_ranks(of.folder);
  if (needs_self_check(options, of) && !read_self_check(of.folder)) {
    ++course.passes;
    course.self_check += follow(self_check_pass(options, run, of), options.limits, course);
    write_noise_of_ranks(of.folder);
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

// Whether the reference must follow the candidate's choices to be comparable: of experts, or what
// random operators drew.
bool choices_differ(const RunDirectory& run) {
  try {
    const Trace reference = Trace::open(run.reference());
    Trace candidate = Trace::open(run.candidate());
    static_cast<void>(align_samples(reference, candidate));
    return has_flips(read_routing(reference), read_routing(candidate)) ||
           has_other_draws(Draws(reference), Draws(candidate));
  } catch (const UsageError&) {
    return false;  // choices that make no whole: the comparison says so
  }
}

// The reference that judges: `plain`, or where choices differ, one that runs once more and follows
// the candidate's. What fails here costs sharpness, not the comparison.
ReferenceRun find_judge(const CheckOptions& options,
                        const RunDirectory& run,
                        const ReferenceRun& plain,
                        Course& course) {
  if (!choices_differ(run)) {
    return plain;
  }
  if (options.rerun.empty()) {
    log(LogLevel::kWarning,
        "the candidate chose other experts or drew other random numbers than the stored reference; "
        "pass --rerun COMMAND, so that the reference can run again with the candidate's choices");
    return plain;
  }
  const std::string side = reference_side(options, run);
  const ReferenceRun following{rerouted_reference(side), side + "/candidate"};
  const int more =
      1 + missing_noise(options, following.folder) - missing_noise(options, plain.folder);
  course.passes += more;
  try {
    run_reference(options, run, following, course);
    return following;
  } catch (const UsageError& error) {
    course.passes -= more;
    course.progress.clear();
    log(LogLevel::kWarning,
        fmt::format(
            "the reference could not run with the candidate's choices, so tensors that depend "
            "on them are not judged sharply: {}",
            error.message()));
    return plain;
  }
}

// Gives the reference that judges its noise, and the candidate's names where these differ. Returns
// that reference: if a stored one cannot run again, it is itself, with the noise it brings.
ReferenceRun prepare_judge(const CheckOptions& options,
                           const RunDirectory& run,
                           const ReferenceRun& plain,
                           Course& course) {
  ReferenceRun judge = find_judge(options, run, plain, course);
  const int before = missing_noise(options, judge.folder);
  try {
    run_repetitions(options, run, judge, course);
  } catch (const UsageError& error) {
    if (!options.stored) {
      throw;
    }
    course.progress.clear();
    log(LogLevel::kWarning,
        fmt::format("the reference could not repeat itself, so the stored one judges with the "
                    "noise passes that it has: {}",
                    error.message()));
    judge = plain;
  }
  if (options.rename && !judge.candidate.empty()) {
    const std::string followed = digest_of_choices(Trace::open(run.candidate()));
    rename_pass(options, judge.folder, run.rerouted(), {.forced_routing = followed}, course);
  } else if (options.rename && before > 0) {
    std::filesystem::remove_all(run.reference());  // once more, with its noise
    rename_pass(options, judge.folder, run.reference(), {}, course);
  }
  return judge;
}

// Runs the reference twice more, with the candidate's values after every module. If this fails, the
// comparison is less sharp, but still possible.
void run_forced_passes(const CheckOptions& options, const RunDirectory& run, Course& course) {
  const Manifest manifest = read_manifest(run.reference());
  const std::string& native = manifest.precision;
  const Precision* const computed = find_precision(native);
  if (!options.forced || computed == nullptr || computed->wider.empty()) {
    return;
  }
  if (manifest.intended.empty() && read_manifest(run.candidate()).intended.empty()) {
    log(LogLevel::kInfo, "no forced passes: the programs do not ask in which precision to compute");
    return;  // the report says what that costs
  }
  if (!is_forced(options, native)) {
    log(LogLevel::kWarning,
        "operators are not checked one by one, because the stored reference does not say which "
        "command made it, or that command's folder is gone; pass --rerun COMMAND, or --no-forced "
        "to skip this check");
    return;
  }
  const std::string side = reference_side(options, run);
  const bool rerouted = course.judged_by == run.rerouted();
  const std::string wider(computed->wider);
  replace_file(settled_placements(side),
               to_text(settled_dims(rerouted ? rerouted_reference(side) : side + "/reference",
                                    side + "/candidate")));
  try {
    course.forced += follow_all(
        {forced_pass(options, run, wider, "forced-wide", forced_wide(side), rerouted),
         forced_pass(options, run, native, "forced-native", forced_native(side), rerouted)},
        options,
        jobs_of(options, run.reference()),
        course);
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

double follow(const Pass& pass, const PassLimits& limits, Course& course, TreeMemory* memory) {
  ++course.pass;
  course.progress.show(line_of(course, pass.name, 0.0) + time_left(course, 0.0));
  const double elapsed = run_pass(pass, limits, [&](double seconds) {
    show_line(pass.name, seconds, course);
    if (memory != nullptr) {
      memory->sample(getpid());
    }
  });
  course.ran += elapsed;
  finish_line(pass.name, elapsed, course);
  return elapsed;
}

void run_passes(const CheckOptions& asked, const RunDirectory& run, Course& course) {
  const NoteInterrupts noted;
  const auto place = asked.limits.fresh ? nullptr : std::make_unique<KeeperPlace>();
  CheckOptions options = asked;
  options.keeper = place ? place->variable() : "";
  course.passes = planned_passes(options);
  if (is_tried_dry(options)) {
    run_dry(options, run, course);
  }
  const ReferenceRun plain{reference_side(options, run) + "/reference"};
  if (options.stored) {
    run.use_stored(plain.folder, options.reference);
    course.memory = remembered_memory(options.reference);
  } else {
    run_reference(options, run, plain, course);
  }
  if (options.rename) {
    warn(rename_pass(options, plain.folder, run.reference(), {}, course));
  }
  const std::string precision = read_manifest(run.reference()).precision;
  course.passes -= is_forced(options, options.precision) && !is_forced(options, precision) ? 2 : 0;
  course.passes -= is_golden(options, options.precision) && !is_golden(options, precision) ? 1 : 0;
  check_space(options, run);
  course.candidate = follow(candidate_pass(options, run), options.limits, course);
  remember_command(run.candidate(), options.candidate);
  // Sooner than the comparison would say so.
  require_same_products(read_manifest(run.reference()), read_manifest(run.candidate()));
  if (options.rename && !options.rerun.empty()) {
    rename_candidate(options, run, course);
  }
  const ReferenceRun judge = prepare_judge(options, run, plain, course);
  course.judged_by = judge.candidate.empty() ? run.reference() : run.rerouted();
  run_forced_passes(options, run, course);
  run_golden_pass(options, run, course);
}

}  // namespace ttrace::cli
