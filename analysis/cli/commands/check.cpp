#include "analysis/cli/commands/auto_attach.h"
#include "analysis/cli/commands/check_estimate.h"
#include "analysis/cli/commands/check_passes.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/drill_down.h"
#include "analysis/cli/commands/print_jobs.h"
#include "analysis/cli/commands/remembered_command.h"
#include "analysis/cli/commands/zoom.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/nearest_folder.h"
#include "analysis/cli/options/pass_limits.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/findings/wording.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// What is run, or left out, beyond the passes of every check.
void add_switches(po::options_description& named) {
  named.add_options()("estimate",
                      "only print how much the check would write; this runs the reference once, "
                      "keeps nothing, and does not need --candidate")(
      "print-jobs",
      "run nothing, but print a shell script with one job for each pass and the comparison, for "
      "SLURM and other queues; needs -o")(
      "collectives",
      "also record and check the inputs and results of collectives; the candidate's trace grows")(
      "ignore-space",
      "run the candidate even if the disk has less free space than its trace needs")(
      "self-check",
      "run the reference a second time without noise, to measure what it does not reproduce by "
      "itself (atomic additions, autotuned kernels); bounds then allow for that. Without this "
      "option it happens where the reference ran on an accelerator without deterministic "
      "algorithms")("no-self-check", "never run the reference a second time without noise")(
      "zoom",
      "if a tensor diverges, run both programs once more with every operator inside its module "
      "recorded, and name the first wrong operator with its line of source; see docs/zoom.md")(
      "auto",
      "the programs have no line of TTrace: in Python, the model and the optimizer are found when "
      "the first training step begins; see docs/python.md")(
      "inference",
      "with --auto: the programs train nothing, so every call of the model is a step; the model is "
      "the first module with parameters that a program calls")(
      "no-forced", "skip the two passes that check each operator on the candidate's own inputs")(
      "golden",
      "run the reference once more in f64 and compare both programs with it; this shows whether "
      "the candidate is too accurate (its precision recipe is not active) or too coarse")(
      "dyadic",
      "give every module of both programs small integers times a power of two, "
      "and demand exact equality wherever such sums are exact (linear operators, "
      "collectives); runs in f32, without noise passes and forced passes");
}

po::options_description named_options() {
  po::options_description named("Options");
  named.add_options()("reference",
                      text_option("COMMAND|FOLDER"),
                      "the trusted program, on one device or in another layout, or the trace that "
                      "an earlier run left "
                      "(its noise passes are used, too)")(
      "candidate", text_option("COMMAND"), "the program under test")(
      "output,o",
      text_option("FOLDER"),
      "folder for everything that the check writes; default: runs/N with the next free number")(
      "rerun",
      text_option("COMMAND"),
      "the program that wrote the stored reference; it runs again where the check needs more "
      "passes of it. Without this option, the command, folder and environment that the stored "
      "reference remembers are used")("noise",
                                      po::value<int>()->default_value(5)->value_name("K"),
                                      "number of noise passes of the reference")(
      "steps",
      text_option("FIRST:LAST"),
      "trace the iterations from FIRST to LAST - 1, or one iteration; the default is 0:1")(
      "rename",
      text_option("FILE"),
      "file that says which names mean the same, if the two programs name their modules "
      "differently; see docs/rename.md")(
      "precision",
      text_option(fmt::format("{}", fmt::join(precisions_on_request(), "|"))),
      "precision in which both programs must compute")(
      "start",
      text_option("reference|own")->default_value("reference"),
      "parameters with which the candidate starts: the reference's or its own");
  add_pass_limit_options(named);
  add_repetition_options(named);
  add_switches(named);
  add_selection_options(named, StepsOption::kRunSteps);
  add_judging_options(named);
  add_report_options(named);
  add_help_option(named);
  return named;
}

void check_word(const char* option,
                const std::string& value,
                const std::vector<std::string>& allowed) {
  TTRACE_CHECK(
      std::ranges::find(allowed, value) != allowed.end(),
      UsageError,
      fmt::format("--{} is '{}'; it must be one of {}", option, value, fmt::join(allowed, ", ")));
}

// `text` may also be a command of any length, hence the error code.
bool is_folder(const std::string& text) {
  std::error_code error;
  return fs::is_directory(text, error);
}

bool is_trace(const std::string& text) {
  return is_folder(text) && fs::exists(text + "/manifest.json");
}

// Requires: all other options are read.
void check_rerun(const CheckOptions& options, bool given) {
  TTRACE_CHECK(!given || options.stored,
               UsageError,
               fmt::format("--rerun belongs to a stored reference, but --reference {} is a "
                           "command, which the check runs again anyway; leave --rerun out",
                           options.reference));
}

// A folder that is neither a stored trace nor a command gets a sentence of its own.
void check_commands(const CheckOptions& options) {
  TTRACE_CHECK(!options.reference.empty(),
               UsageError,
               "--reference is missing; pass --reference COMMAND or --reference FOLDER");
  TTRACE_CHECK(!options.candidate.empty() || options.estimate,
               UsageError,
               "--candidate is missing; pass --candidate COMMAND");
  if (is_folder(options.reference) && !options.stored) {
    const bool run = is_trace(options.reference + "/reference");
    TTRACE_THROW(
        UsageError,
        fmt::format(
            "the folder {0} has no manifest.json, so it is not a stored reference; pass {1}",
            options.reference,
            run ? "--reference " + options.reference + "/reference" : "a trace or a command"));
  }
  for (const auto& [option, text] :
       {std::pair("reference", options.reference), std::pair("candidate", options.candidate)}) {
    if (is_missing_path(text)) {
      const std::string near = nearest_folder(text);
      TTRACE_THROW(
          UsageError,
          fmt::format("--{} {} is neither a folder nor a program{}",
                      option,
                      text,
                      near.empty() ? "; check its path" : "; the nearest folder is " + near));
    }
  }
  TTRACE_CHECK(!is_folder(options.candidate),
               UsageError,
               fmt::format("--candidate {} is a folder, but a command is needed; `ttrace diff` "
                           "compares stored traces",
                           options.candidate));
}

// Sets the options that --dyadic implies.
void choose_dyadic(CheckOptions& options) {
  TTRACE_CHECK(!options.stored,
               UsageError,
               fmt::format("--dyadic gives the reference's modules other inputs, so it cannot use "
                           "the stored trace {}; pass the reference's command",
                           options.reference));
  TTRACE_CHECK(options.precision.empty() || options.precision == kDyadicPrecision,
               UsageError,
               fmt::format("--dyadic needs {}, in which sums of small integers are exact, but "
                           "--precision is {}; leave --precision out",
                           kDyadicPrecision,
                           options.precision));
  TTRACE_CHECK(options.keep != Keep::kSketch,
               UsageError,
               "--dyadic demands equal elements, but TTRACE_KEEP=sketch keeps none; unset it");
  TTRACE_CHECK(!options.rename,
               UsageError,
               "--dyadic derives the values of a module from its name, so both programs must use "
               "the same names; leave --dyadic or --rename out");
  options.precision = kDyadicPrecision;
  options.noise = 0;
  options.self_check = SelfCheck::kNever;
  options.forced = false;
  options.golden = true;
}

// What the passes of this check keep of a tensor; nothing where nobody asked.
std::optional<Keep> asked_keep() {
  const char* const asked = std::getenv("TTRACE_KEEP");
  if (asked == nullptr) {
    return std::nullopt;
  }
  const std::optional<Keep> keep = find_keep(asked);
  TTRACE_CHECK(
      keep, UsageError, fmt::format("TTRACE_KEEP is '{}'; set it to bytes or sketch", asked));
  return keep;
}

SelfCheck self_check_of(const po::variables_map& values) {
  const bool asked = values.count("self-check") != 0;
  const bool refused = values.count("no-self-check") != 0;
  TTRACE_CHECK(!asked || !refused,
               UsageError,
               "--self-check and --no-self-check contradict each other; leave one of them out");
  return asked ? SelfCheck::kAlways : refused ? SelfCheck::kNever : SelfCheck::kWhereNeeded;
}

// The command that made a stored reference. One whose names were changed is not what it wrote.
std::string remembered(const std::string& reference) {
  return read_manifest(reference).names.empty() ? remembered_command(reference).value_or("") : "";
}

CheckOptions read_options(const po::variables_map& values) {
  CheckOptions options;
  options.reference = text_of(values, "reference").value_or("");
  options.stored = is_trace(options.reference);
  options.candidate = text_of(values, "candidate").value_or("");
  const auto rerun = text_of(values, "rerun");
  options.rerun = !options.stored ? options.reference
                  : rerun         ? *rerun
                                  : remembered(options.reference);
  options.output = text_of(values, "output").value_or("");
  options.estimate = values.count("estimate") != 0;
  options.collectives = values.count("collectives") != 0;
  options.zooms = values.count("zoom") != 0;
  options.ignore_space = values.count("ignore-space") != 0;
  options.forced = values.count("no-forced") == 0;
  options.golden = values.count("golden") != 0;
  options.dyadic = values.count("dyadic") != 0;
  options.automatic = values.count("auto") != 0;
  options.inference = values.count("inference") != 0;
  TTRACE_CHECK(
      options.automatic || !options.inference,
      UsageError,
      "--inference is for programs that have no line of TTrace; add --auto, or leave it out: "
      "a program with lines says itself what a step is");
  options.rerun_given = rerun.has_value();
  options.self_check = self_check_of(values);
  options.noise = whole_number(values, "noise", 0);
  options.noise_given = !values["noise"].defaulted();
  if (const auto steps = text_of(values, "steps")) {
    options.steps = parse_steps(*steps);
  }
  if (const auto precision = text_of(values, "precision")) {
    options.precision = *precision;
    check_word("precision", options.precision, precisions_on_request());
  }
  options.keep = asked_keep();
  if (const auto map = text_of(values, "rename")) {
    TTRACE_CHECK(options.keep != Keep::kSketch,
                 UsageError,
                 "--rename lays tensors out anew, but TTRACE_KEEP=sketch keeps no elements; unset "
                 "it");
    options.rename = RenameMap::load(*map);
  }
  if (options.dyadic) {
    choose_dyadic(options);
  }
  options.start = values["start"].as<std::string>();
  check_word("start", options.start, {"reference", "own"});
  options.limits = pass_limits_of(values);
  options.report = report_options(values);
  options.judging.threads = options.report.threads;
  options.judging.selection = selection_of(values, StepsOption::kRunSteps);
  read_judging_options(values, options.judging);
  check_commands(options);
  check_rerun(options, rerun.has_value());
  return options;
}

// How many noise passes a stored reference that has `passes` will have: all that were asked for
// when it was made. A check that ended early has not made them, and --noise 0 leaves them out.
void read_missing_noise(CheckOptions& options, int passes) {
  const int asked = options.noise;
  const int wanted = options.rerun.empty() ? 0 : remembered_noise(options.reference);
  options.noise = std::max(passes, options.noise_given ? std::min(asked, wanted) : wanted);
  if (options.noise_given && asked != options.noise && passes > 0) {
    log(LogLevel::kWarning,
        fmt::format("--noise is ignored, because the stored reference brings its own {}",
                    counted(static_cast<std::size_t>(passes), "noise pass")));
  }
}

// Takes the traced steps from a stored reference, and checks what it offers.
void read_stored_reference(CheckOptions& options) {
  const Manifest manifest = read_manifest(options.reference);
  TTRACE_CHECK(is_complete(options.reference),
               UsageError,
               fmt::format("the stored reference {} is not complete; run its reference pass again",
                           options.reference));
  TTRACE_CHECK(
      !manifest.steps.empty(),
      UsageError,
      fmt::format("the stored reference {} has no traced step; run its reference pass again",
                  options.reference));
  TTRACE_CHECK(
      manifest.names.empty() || options.rerun.empty(),
      UsageError,
      fmt::format(
          "the stored reference {} has the candidate's names, but the program of --rerun does not; "
          "pass --rename with the trace that this program wrote, or leave --rerun out",
          options.reference));
  const StepRange stored{manifest.steps.front(), manifest.steps.back() + 1};
  TTRACE_CHECK(!options.steps || *options.steps == stored,
               UsageError,
               fmt::format("--steps is {}, but the stored reference has {}; leave --steps out, or "
                           "run the reference again",
                           to_string(options.steps.value_or(stored)),
                           to_string(stored)));
  options.steps = stored;
  const int passes = static_cast<int>(noise_files(options.reference).size());
  read_missing_noise(options, passes);
  if (options.noise == 0) {
    log(LogLevel::kWarning,
        fmt::format("{} has no noise passes, so bounds are class defaults, which are less sharp",
                    options.reference));
  }
  if (options.self_check == SelfCheck::kAlways && passes == options.noise &&
      !read_self_check(options.reference)) {
    log(LogLevel::kWarning,
        "--self-check is ignored, because it belongs to the run that makes a reference; run the "
        "reference again with --self-check");
  }
}

std::string summary(const RunDirectory& run, const Course& course) {
  std::string text;
  for (const auto& [what, seconds] : {std::pair("dry candidate", course.dry),
                                      std::pair("reference", course.reference),
                                      std::pair("candidate", course.candidate),
                                      std::pair("self-check", course.self_check),
                                      std::pair("noise passes", course.noise),
                                      std::pair("2 forced passes", course.forced),
                                      std::pair("golden pass", course.golden)}) {
    text += seconds > 0.0 ? fmt::format("{} {}, ", what, seconds_text(seconds)) : "";
  }
  return fmt::format("{}comparison {}; {:.1f} MB in {}",
                     text,
                     seconds_text(course.comparison),
                     static_cast<double>(run.size()) / 1e6,
                     run.path());
}

// What follows from --zoom. Where there is nothing to zoom into, the report says why.
void add_zoom(const CheckOptions& options, const RunDirectory& run, Report& report) {
  if (!options.zooms || !report.diverged()) {
    return;
  }
  try {
    const ZoomTarget target = target_of(report, "");
    Course course;
    report.zoom = zoom_into(target, options, run.path(), course);
  } catch (const UsageError& error) {
    report.zoom = ZoomReport();
    report.zoom->problem = error.message();
  }
}

int run_check(const po::variables_map& values) {
  CheckOptions options = read_options(values);
  if (options.stored) {
    read_stored_reference(options);
  }
  if (options.estimate) {
    return run_estimate(options);
  }
  if (values.count("print-jobs") != 0) {
    TTRACE_CHECK(!options.automatic,
                 UsageError,
                 "--print-jobs cannot go with --auto, which needs files that no job writes; leave "
                 "--auto out, and add TTrace's four lines to the programs (docs/python.md)");
    print_jobs(std::cout, first_passes(options), values);
    return 0;
  }
  const RunDirectory run = RunDirectory::create(options.output);
  if (options.automatic) {
    attach_by_itself(options, run.path() + "/auto");
  }
  require_writable(options.report);  // perhaps in the folder of the run
  options.report.files.insert(options.report.files.begin(),
                              {{ReportFormat::kText, run.path() + "/report.txt"},
                               {ReportFormat::kJson, run.path() + "/report.json"}});
  Course course;
  run_passes(first_passes(options), run, course);
  const auto start = std::chrono::steady_clock::now();
  Report report =
      judge({course.judged_by, run.candidate(), run.path()}, options.judging, Completeness::kWhole);
  course.comparison =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  options.report.run = run.path();
  if (options.keep == Keep::kSketch && report.diverged()) {
    DrilledDown down = drill_down(options, run, std::move(report), course);
    report = std::move(down.report);
    options.report.run = down.run;
  }
  add_zoom(options, run, report);
  write_report(report, options.report);
  course.progress.print(summary(run, course));
  return exit_code(report);
}

}  // namespace

Manual check_manual() {
  return {
      .name = "check",
      .summary = "run reference, noise passes and candidate, then compare them",
      .synopses = {"--reference COMMAND|FOLDER --candidate COMMAND [options]"},
      .description =
          {"Tries one step of the candidate, so that its own errors show first. Then it runs the "
           "reference, the candidate, and the reference K more times with noise and twice more "
           "with "
           "the candidate's values in place of its own, and compares. "
           "Every pass gets its task in TTRACE_* variables and ends after the last traced step. "
           "COMMAND is a shell command in quotes.",
           "With --precision f64, both programs compute in f64. Round-off is 1e-15 there, so a "
           "relative error of 1e-9 shows at the tensor where it begins. A defect that exists only "
           "in a lower precision needs a check in that precision.",
           "TTRACE_KEEP=sketch keeps some thousand sums of every large tensor instead of its "
           "elements, and leaves the passes with the candidate's values out. Where something is "
           "beyond its bound, both programs run once more with the elements of what lies around it "
           "kept, and these passes as well. TTRACE_ELEMENTS=REGEX keeps the elements of tensors in "
           "whose id it occurs.",
           "The programs inherit TTRACE_ELEMENTS, TTRACE_FILTER, TTRACE_KEEP, TTRACE_LOG, "
           "TTRACE_NAMED, "
           "TTRACE_ON_ERROR, "
           "TTRACE_RING_BYTES and TTRACE_SYNC from the environment; TTrace sets all other TTRACE_* "
           "variables for each pass. TTRACE_FILTER decides what is captured, and --filter decides "
           "which captured tensors are compared. Both search the id."},
      .options = named_options(),
      .run = run_check,
      .exit_codes =
          {{"0", "every tensor is within its bound"},
           {"1", "a tensor diverges or is missing"},
           {"2", "the check could not compare: a pass failed, the disk is too full, or bad usage"},
           {"128+n", "signal n ended the check (Ctrl-C: 130)"}},
      .examples =
          {{"ttrace check --reference \"ref --config c.yaml\" --candidate \"mpirun -n 4 train "
            "--config c.yaml\"",
            "compare four ranks with the single-device program"},
           {"ttrace check --estimate --reference \"ref --config c.yaml\" -o /scratch/run",
            "print how much this check would write"},
           {"ttrace check --reference runs/1/reference --candidate \"mpirun -n 4 train\"",
            "check again with the stored reference and its noise passes"},
           {"ttrace check --reference runs/1/reference --candidate \"mpirun -n 4 train\" --format "
            "junit=report.xml",
            "print the text, and write report.xml for a CI server"},
           {"ttrace check --precision f64 --reference \"ref\" --candidate \"mpirun -n 4 train\"",
            "compare the logic of both programs in FP64"},
           {"ttrace check --print-jobs --reference \"srun -n 1 ref\" --candidate \"srun -n 8 "
            "train\" -o /scratch/run > jobs.sh",
            "write the passes as jobs, for a cluster where every program is queued on its own"},
           {"ttrace check --golden --reference \"ref\" --candidate \"mpirun -n 4 train\"",
            "find out whether the precision recipe is active at all"}},
      .takes_words = false};
}

}  // namespace ttrace::cli
