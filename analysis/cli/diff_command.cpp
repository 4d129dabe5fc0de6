#include "diff_command.h"

#include "progress.h"
#include "report_output.h"
#include "run_directory.h"
#include "selection_options.h"
#include "trace_argument.h"

#include <ttrace/error.h>

#include <filesystem>
#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct TracePair {
  std::string reference;
  std::string candidate;
  std::string run = {};  // folder made by check; empty: two traces were given
};

TracePair find_traces(const std::vector<std::string>& folders) {
  for (const auto& folder : folders) {
    TTRACE_CHECK(std::filesystem::is_directory(folder), UsageError, "there is no folder ", folder);
  }
  if (folders.size() == 2) {
    return {folders[0], folders[1]};
  }
  TTRACE_CHECK(folders.size() == 1,
               UsageError,
               "diff takes a reference and a candidate, or one folder made by ttrace check; ",
               folders.size(),
               " were given");
  TTRACE_CHECK(is_run_directory(folders[0]),
               UsageError,
               folders[0],
               " has no reference/ and candidate/ inside, so it was not made by ttrace check; give "
               "a reference and a candidate");
  return {judged_reference(folders[0]), folders[0] + "/candidate", folders[0]};
}

}  // namespace

Manual diff_manual() {
  po::options_description named("Options");
  add_selection_options(named);
  add_judging_options(named);
  named.add_options()(
      "partial",
      "read what an interrupted step left: finished files, and of `.tmp` files what "
      "was flushed; what is not there is no finding");
  add_report_options(named);
  add_help_option(named);
  return {
      .name = "diff",
      .summary = "compare two stored traces",
      .synopses = {"REFERENCE CANDIDATE [options]", "RUN [options]"},
      .description = {"Judges two stored traces again without running anything. RUN is a folder "
                      "made by ttrace check.",
                      "The selection says what is looked at; bounds come from all tensors. "
                      "--ranks means the candidate's ranks."},
      .options = named,
      .exit_codes = {{"0", "within bounds"},
                     {"1", "divergence, missing tensors included"},
                     {"2", "could not compare; also a partial comparison without a divergence"}},
      .examples = {{"ttrace diff runs/1 --format json", "judge the last check again"},
                   {"ttrace diff REF CAND --kinds main_grad --rtol 1e-3 --atol '.*bias.*:1e-6'",
                    "gradients only, with tolerances of one's own"},
                   {"ttrace diff runs/1 --calibration calibration.json",
                    "with the limits of a program of one's own, see `ttrace calibrate`"},
                   {"ttrace diff runs/1 --partial", "what a killed run got as far as"}}};
}

int run_diff(const Arguments& arguments) {
  const Manual manual = diff_manual();
  const po::variables_map values = parse(arguments, manual.options, "trace");
  if (values.count("help") != 0) {
    print_help(std::cout, manual);
    return 0;
  }
  const ReportOptions options = report_options(values);
  DiffOptions judging;
  judging.threads = options.threads;
  judging.selection = selection_of(values);
  read_judging_options(values, judging);
  const TracePair traces = find_traces(words_of(values, "trace"));
  const auto forced = forced_traces(traces.run);
  judging.forced = forced ? &*forced : nullptr;
  ProgressLine progress;
  const Report report =
      compare(traces.reference,
              traces.candidate,
              judging,
              progress,
              values.count("partial") != 0 ? Completeness::kPartial : Completeness::kWhole);
  write_report(std::cout, report, options);
  return exit_code(report);
}

}  // namespace ttrace::cli
