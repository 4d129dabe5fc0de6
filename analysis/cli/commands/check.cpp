#include "analysis/cli/commands/check.h"

#include "analysis/cli/commands/check_passes.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/run/estimate.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/reports/report_writers.h"
#include "trace/base/precision.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <system_error>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

po::options_description named_options() {
  po::options_description named("Options");
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  named.add_options()(
      "reference",
      text("COMMAND|FOLDER"),
      "trusted single-device program, or the trace of an earlier run (with its noise passes)")(
      "candidate", text("COMMAND"), "program under test")(
      "output,o", text("FOLDER"), "where everything goes; default: runs/N, the next free number")(
      "rerun",
      text("COMMAND"),
      "program of the stored reference, to repeat it with the candidate's experts")(
      "noise",
      po::value<int>()->default_value(5)->value_name("K"),
      "noise passes of the reference")(
      "steps", text("FIRST:LAST"), "traced iterations, LAST excluded, or one number; default 0:1")(
      "rename",
      text("FILE"),
      "which names are the same, for programs whose modules have different ones; docs/rename.md")(
      "precision", text("f64|f32|bf16|f16|fp8"), "precision that both programs must compute in")(
      "start",
      text("reference|own")->default_value("reference"),
      "parameters the candidate starts from: the reference's, or its own")(
      "timeout",
      po::value<double>()->default_value(600.0, "600")->value_name("S"),
      "seconds that a pass may take")(
      "grace",
      po::value<double>()->default_value(5.0, "5")->value_name("S"),
      "seconds that a program is given to end after SIGTERM, before SIGKILL");
  named.add_options()("estimate",
                      "only tell how much the check would write: one pass of the reference that "
                      "counts and keeps nothing; --candidate is not needed")(
      "collectives",
      "record and check what collectives are given and return; larger traces of the candidate")(
      "ignore-space", "run the candidate even where less is free than its trace needs")(
      "no-forced",
      "leave out the two passes in which the reference goes on with the candidate's values and "
      "every operator is checked on its own")(
      "golden",
      "hold both programs against one more pass of the reference, in f64: tells a candidate that "
      "is "
      "too accurate, whose precision recipe is not active, from one that is too coarse")(
      "dyadic",
      "give every module of both programs small integers times a power of two and demand equality "
      "wherever such sums are exact: linear operators, collectives; in f32, without noise and "
      "forced "
      "passes");
  add_selection_options(named, StepsOption::kRunSteps);
  add_judging_options(named);
  add_report_options(named);
  add_help_option(named);
  return named;
}

std::string text_or(const po::variables_map& values, const char* name, const char* otherwise) {
  return values.count(name) == 0 ? otherwise : values[name].as<std::string>();
}

void check_word(const char* option,
                const std::string& value,
                const std::vector<std::string>& allowed) {
  std::string list;
  for (const auto& word : allowed) {
    if (value == word) {
      return;
    }
    list += (list.empty() ? "" : ", ") + word;
  }
  TTRACE_THROW(UsageError, "--", option, " is '", value, "'; it must be one of ", list);
}

// Of a text that may as well be a command, however long.
bool is_folder(const std::string& text) {
  std::error_code error;
  return fs::is_directory(text, error);
}

bool is_trace(const std::string& text) {
  return is_folder(text) && fs::exists(text + "/manifest.json");
}

// Needs `options` whole.
void check_rerun(const CheckOptions& options, bool given) {
  TTRACE_CHECK(!given || options.stored,
               UsageError,
               "--rerun is for a stored reference; --reference ",
               options.reference,
               " is a command, which is run again where that is needed");
}

// A folder that is neither a stored trace nor a command deserves to be told apart from both.
void check_commands(const CheckOptions& options) {
  TTRACE_CHECK(!options.reference.empty(), UsageError, "--reference COMMAND|FOLDER is needed");
  TTRACE_CHECK(
      !options.candidate.empty() || options.estimate, UsageError, "--candidate COMMAND is needed");
  if (is_folder(options.reference) && !options.stored) {
    const bool run = is_trace(options.reference + "/reference");
    TTRACE_THROW(
        UsageError,
        "the folder ",
        options.reference,
        " has no manifest.json, so it is no stored reference; ",
        run ? "pass --reference " + options.reference + "/reference" : "pass a trace or a command");
  }
  TTRACE_CHECK(!is_folder(options.candidate),
               UsageError,
               "--candidate ",
               options.candidate,
               " is a folder; `ttrace diff` compares stored traces");
}

// What --dyadic implies.
void choose_dyadic(CheckOptions& options) {
  TTRACE_CHECK(!options.stored,
               UsageError,
               "--dyadic needs a command for the reference, not the stored trace ",
               options.reference,
               ", because it gives the reference's modules other inputs too");
  TTRACE_CHECK(options.precision.empty() || options.precision == "f32",
               UsageError,
               "--dyadic is for --precision f32, not ",
               options.precision,
               ": sums of small integers are exact there, and compared with f64 that shows");
  TTRACE_CHECK(
      !options.rename,
      UsageError,
      "--dyadic gives modules values that follow from their names, so that it is for programs "
      "with the same ones; leave it or --rename out");
  options.precision = "f32";
  options.noise = 0;
  options.forced = false;
  options.golden = true;
}

CheckOptions read_options(const po::variables_map& values) {
  CheckOptions options;
  options.reference = text_or(values, "reference", "");
  options.stored = is_trace(options.reference);
  options.candidate = text_or(values, "candidate", "");
  options.rerun = options.stored ? text_or(values, "rerun", "") : options.reference;
  options.output = text_or(values, "output", "");
  options.estimate = values.count("estimate") != 0;
  options.collectives = values.count("collectives") != 0;
  options.ignore_space = values.count("ignore-space") != 0;
  options.forced = values.count("no-forced") == 0;
  options.golden = values.count("golden") != 0;
  options.dyadic = values.count("dyadic") != 0;
  options.noise = whole_number(values, "noise", 0);
  options.noise_given = !values["noise"].defaulted();
  if (values.count("steps") != 0) {
    options.steps = parse_steps(values["steps"].as<std::string>());
  }
  if (values.count("precision") != 0) {
    options.precision = values["precision"].as<std::string>();
    check_word("precision", options.precision, precisions_on_request());
  }
  if (values.count("rename") != 0) {
    options.rename = RenameMap::load(values["rename"].as<std::string>());
  }
  if (options.dyadic) {
    choose_dyadic(options);
  }
  options.start = values["start"].as<std::string>();
  check_word("start", options.start, {"reference", "own"});
  options.limits = {.timeout = seconds(values, "timeout"), .grace = seconds(values, "grace")};
  options.report = report_options(values);
  options.judging.threads = options.report.threads;
  options.judging.selection = selection_of(values, StepsOption::kRunSteps);
  read_judging_options(values, options.judging);
  check_commands(options);
  check_rerun(options, values.count("rerun") != 0);
  return options;
}

// Takes the traced steps from a stored reference and says what it offers.
void read_stored_reference(CheckOptions& options) {
  const Manifest manifest = read_manifest(options.reference);
  TTRACE_CHECK(is_complete(options.reference),
               UsageError,
               "the stored reference ",
               options.reference,
               " is not complete; run its reference pass again");
  TTRACE_CHECK(!manifest.steps.empty(), UsageError, options.reference, " has no traced step");
  TTRACE_CHECK(manifest.names.empty() || options.rerun.empty(),
               UsageError,
               "the stored reference ",
               options.reference,
               " is in the candidate's names, which the program of --rerun does not have; pass "
               "--rename with the trace that it wrote, or leave --rerun out");
  const StepRange stored{manifest.steps.front(), manifest.steps.back() + 1};
  TTRACE_CHECK(!options.steps || *options.steps == stored,
               UsageError,
               "--steps is ",
               to_string(options.steps.value_or(stored)),
               " but the stored reference has ",
               to_string(stored),
               "; leave --steps out, or run the reference again");
  options.steps = stored;
  const std::size_t passes = read_noise(options.reference).size();
  if (passes == 0) {
    log(LogLevel::kWarning,
        options.reference + " has no noise passes: bounds are class defaults, less sharp");
  }
  if (options.noise_given) {
    log(LogLevel::kWarning,
        "--noise is ignored: a stored reference keeps its own noise passes, here " +
            std::to_string(passes));
  }
}

void write_files(const RunDirectory& run, const Report& report, std::size_t max_rows) {
  std::ostringstream text;
  write_text(text, report, {.color = false, .max_rows = max_rows});
  run.write("report.txt", text.str());
  std::ostringstream json;
  write_json(json, report);
  run.write("report.json", json.str());
}

std::string summary(const CheckOptions& options, const RunDirectory& run, const Course& course) {
  std::ostringstream out;
  if (!options.stored) {
    out << "reference " << seconds_text(course.reference) << ", " << options.noise
        << " noise passes " << seconds_text(course.noise) << ", ";
  }
  out << "candidate " << seconds_text(course.candidate) << ", ";
  if (course.forced > 0.0) {
    out << "2 forced passes " << seconds_text(course.forced) << ", ";
  }
  if (course.golden > 0.0) {
    out << "golden pass " << seconds_text(course.golden) << ", ";
  }
  out << "comparison " << seconds_text(course.comparison) << "; " << std::fixed
      << std::setprecision(1) << static_cast<double>(run.size()) / 1e6 << " MB in " << run.path();
  return out.str();
}

CaptureCounts count_reference(const CheckOptions& options) {
  if (options.stored) {
    return count_trace(options.reference);
  }
  const NoteInterrupts noted;
  TemporaryFolder folder("estimate");
  folder.keep(true);  // where the pass fails, it holds the log
  Pass pass{.name = "counting reference",
            .command = options.reference,
            .variables = variables(options, "reference"),
            .trace = folder.path(),
            .log = folder.path() + "/reference.log",
            .complete = [path = folder.path()] { return counts_are_complete(path); },
            .remedy = ""};
  pass.variables.emplace_back("TTRACE_DIR", folder.path());
  pass.variables.emplace_back("TTRACE_COUNT", "1");
  Course course;
  course.passes = 1;
  follow(pass, options.limits, course);
  CaptureCounts all;
  for (const CaptureCounts& rank : read_counts(folder.path())) {
    all.start += rank.start;
    for (const auto& [step, kinds] : rank.steps) {
      for (const auto& [kind, count] : kinds) {
        all.steps[step][kind] += count;
      }
    }
  }
  folder.keep(false);
  return all;
}

// 0 where what is needed at least is free.
int run_estimate(const CheckOptions& options) {
  Estimate estimate;
  estimate.reference = count_reference(options);
  estimate.noise_passes = options.noise;
  estimate.stored = options.stored;
  estimate.forced = options.forced && !options.rerun.empty() && options.precision != "f64";
  estimate.golden = options.golden && !options.rerun.empty() && options.precision != "f64";
  estimate.renamed = options.rename.has_value();
  estimate.output = options.output.empty() ? "runs" : options.output;
  estimate.free = free_bytes(estimate.output);
  print_estimate(std::cout, estimate);
  return estimate.needed() <= estimate.free ? 0 : 2;
}

}  // namespace

Manual check_manual() {
  return {
      .name = "check",
      .summary = "run reference, noise passes and candidate, then compare",
      .synopses = {"--reference COMMAND|FOLDER --candidate COMMAND [options]"},
      .description =
          {"Runs the reference once, K times more under noise, the candidate, and the reference "
           "twice more with the candidate's values in place of its own, each described by TTRACE_* "
           "variables and ended after the last traced step; then compares. COMMAND is a shell "
           "command in quotes.",
           "With --precision f64 the check is a logic pass: both programs compute in f64, where "
           "round-off is 1e-15 and a relative error of 1e-9 shows at the tensor where it begins; "
           "what "
           "only a lower precision does wrong needs a check in that precision.",
           "TTRACE_FILTER, TTRACE_LOG, TTRACE_NAMED and TTRACE_ON_ERROR are handed on from the "
           "environment; all other TTRACE_* variables are set for each pass. TTRACE_FILTER decides "
           "what is captured, --filter what of it is looked at; both are searched in the id."},
      .options = named_options(),
      .exit_codes = {{"0", "within bounds"},
                     {"1", "divergence, missing tensors included"},
                     {"2", "could not compare: a failed pass, too little space, bad usage"},
                     {"128+n", "ended by signal n (Ctrl-C: 130)"}},
      .examples = {
          {"ttrace check --reference \"ref --config c.yaml\" --candidate \"mpirun -n 4 train "
           "--config c.yaml\"",
           "compare four ranks with the single-device program"},
          {"ttrace check --estimate --reference \"ref --config c.yaml\" -o /scratch/run",
           "how much that would write, before it is written"},
          {"ttrace check --reference runs/1/reference --candidate \"mpirun -n 4 train\"",
           "again, with the stored reference and its noise"},
          {"ttrace check --reference runs/1/reference --candidate \"mpirun -n 4 train\" --format "
           "junit=report.xml",
           "in CI: the text is printed, report.xml is for the server (examples/ci_gate)"},
          {"ttrace check --precision f64 --reference \"ref\" --candidate \"mpirun -n 4 train\"",
           "a logic pass: both programs in FP64"},
          {"ttrace check --golden --reference \"ref\" --candidate \"mpirun -n 4 train\"",
           "is the precision recipe active at all?"}}};
}

int run_check(const Arguments& arguments) {
  const Manual manual = check_manual();
  const po::variables_map values = parse(arguments, manual.options);
  if (values.count("help") != 0) {
    print_help(std::cout, manual);
    return 0;
  }
  CheckOptions options = read_options(values);
  if (options.stored) {
    read_stored_reference(options);
  }
  if (options.estimate) {
    return run_estimate(options);
  }
  const RunDirectory run = RunDirectory::create(options.output);
  require_writable(options.report);  // perhaps in the folder of the run
  Course course;
  run_passes(options, run, course);
  const auto start = std::chrono::steady_clock::now();
  const auto forced = forced_traces(run.path());
  options.judging.forced = forced ? &*forced : nullptr;
  const auto golden = golden_trace(run.path());
  options.judging.golden = golden ? &*golden : nullptr;
  const Report report =
      compare(course.judged_by, run.candidate(), options.judging, course.progress);
  course.comparison =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_files(run, report, options.report.max_rows);
  write_report(report, options.report);
  course.progress.print(summary(options, run, course));
  return exit_code(report);
}

}  // namespace ttrace::cli
