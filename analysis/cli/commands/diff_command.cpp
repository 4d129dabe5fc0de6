#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

int run_diff(const po::variables_map& values) {
  ReportOptions options = report_options(values);
  require_writable(options);
  DiffOptions judging;
  judging.threads = options.threads;
  judging.selection = selection_of(values);
  read_judging_options(values, judging);
  judging.allowances = allowances_of(values);
  StoredPair pair = find_pair("diff", words_of(values));
  read_rename_option(values, pair);
  const Report report = judge(pair, judging, completeness_of(values));
  options.run = pair.run;
  write_report(report, options);
  return exit_code(report);
}

}  // namespace

Manual diff_manual() {
  po::options_description named("Options");
  add_selection_options(named);
  add_judging_options(named);
  add_ledger_option(named);
  add_rename_option(named);
  add_partial_option(named);
  add_report_options(named);
  add_help_option(named);
  return {
      .name = "diff",
      .summary = "compare two stored traces",
      .synopses = {"REFERENCE CANDIDATE [options]", "RUN [options]"},
      .description = {"Judges two stored traces again without running any program. RUN is a folder "
                      "made by ttrace check.",
                      "The selection limits which tensors are compared; bounds still follow from "
                      "all tensors. --ranks means ranks of the candidate."},
      .options = named,
      .run = run_diff,
      .exit_codes =
          {{"0", "every tensor is within its bound"},
           {"1", "a tensor diverges or is missing"},
           {"2",
            "the traces could not be compared, or were compared in part without a divergence"}},
      .examples = {{"ttrace diff runs/1 --format json", "judge the last check again"},
                   {"ttrace diff REF CAND --kinds main_grad --rtol 1e-3 --atol '.*bias.*:1e-6'",
                    "compare gradients only, with your own tolerances"},
                   {"ttrace diff runs/1 --calibration calibration.json",
                    "use your own program's limits (see `ttrace calibrate`)"},
                   {"ttrace diff runs/1 --format junit=report.xml",
                    "print the text and write a file for a CI server"},
                   {"ttrace diff runs/1 --partial", "compare as much as a killed run recorded"}}};
}

}  // namespace ttrace::cli
