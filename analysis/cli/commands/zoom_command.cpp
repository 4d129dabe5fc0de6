#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/remembered_command.h"
#include "analysis/cli/commands/zoom.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/pass_limits.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/reports/tensor_json.h"
#include "analysis/reports/zoom_text.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

std::string command_of(const po::variables_map& values,
                       const char* option,
                       const std::string& trace) {
  if (const auto given = text_of(values, option)) {
    return *given;
  }
  const auto remembered = remembered_command(trace);
  TTRACE_CHECK(
      remembered,
      UsageError,
      fmt::format("{} does not say which command made it; pass --{} COMMAND", trace, option));
  return *remembered;
}

// What the check was asked for, as its folder tells.
CheckOptions options_of(const po::variables_map& values, const StoredPair& pair) {
  const Manifest manifest = read_manifest(pair.reference);
  CheckOptions options;
  options.rerun = command_of(values, "rerun", pair.reference);
  options.candidate = command_of(values, "candidate", pair.candidate);
  options.noise = static_cast<int>(noise_files(pair.reference).size());
  options.steps = StepRange{manifest.steps.front(), manifest.steps.back() + 1};
  options.precision = manifest.precision;
  options.start = "reference";
  options.forced = forced_traces(pair.run).has_value();
  options.limits = pass_limits_of(values);
  return options;
}

int run_zoom(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  DiffOptions judging;
  judging.threads = threads_of(values);
  read_judging_options(values, judging);
  const StoredPair pair = find_pair("zoom", words_of(values));
  TTRACE_CHECK(!pair.run.empty(), UsageError, "zoom needs one folder made by ttrace check");
  CheckOptions options = options_of(values, pair);
  options.judging = judging;
  const std::string module = text_of(values, "module").value_or("");
  const ZoomTarget target = target_of(judge(pair, judging, Completeness::kWhole), module);
  Course course;
  const ZoomReport zoom = zoom_into(target, options, pair.run, course);
  if (format == ReportFormat::kJson) {
    std::cout << dump(zoom_json(zoom)) << '\n';
  } else {
    write_zoom(std::cout, zoom);
  }
  return zoom.first ? 1 : zoom.reference_operators > 0 ? 0 : 2;
}

}  // namespace

Manual zoom_manual() {
  po::options_description named("Options");
  named.add_options()("module",
                      text_option("PATH"),
                      "the module to look into; default: the one of the first divergence")(
      "rerun",
      text_option("COMMAND"),
      "the reference; default: the command that the folder remembers")(
      "candidate",
      text_option("COMMAND"),
      "the candidate; default: the command that the folder remembers");
  add_pass_limit_options(named);
  add_repetition_options(named);
  add_judging_options(named);
  add_format_option(named);
  add_threads_option(named);
  add_help_option(named);
  return {
      .name = "zoom",
      .summary = "name the first wrong operator inside a module",
      .synopses = {"RUN [options]"},
      .description =
          {"Runs both programs of a check once more. Every operator inside the module of the first "
           "divergence is recorded, forward and backward. The operators of the two programs are "
           "aligned by name, shape and place in the source, and the first one that round-off does "
           "not explain is named with its line of source.",
           "RUN is a folder made by ttrace check; the passes go to RUN/zoom. `ttrace check --zoom` "
           "does the same at the end of a check. See docs/zoom.md."},
      .options = named,
      .run = run_zoom,
      .exit_codes = {{"0", "round-off explains every operator of the module"},
                     {"1", "an operator is named"},
                     {"2", "the zoom was not possible, or bad usage"}},
      .examples = {
          {"ttrace zoom runs/1", "find the operator behind the last check's divergence"},
          {"ttrace zoom runs/1 --module decoder.layers.0.mlp", "look into another module"}}};
}

}  // namespace ttrace::cli
