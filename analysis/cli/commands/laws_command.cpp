#include "analysis/checks/law_check.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/laws_text.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/trace_argument.h"
#include "trace/file/trace_reader.h"

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

int run_laws(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  const std::string folder = trace_folder_of(values, "laws");
  const Trace trace = Trace::open(folder);
  const auto obeyed = obeyed_laws(values);
  const LawsInForce in_force =
      obeyed ? laws_of(trace, *obeyed) : LawsInForce{.laws = laws_of(trace)};
  const std::vector<Law>& laws = in_force.laws;
  const LawCounts counts = count(laws, in_force.left_out);
  if (format == ReportFormat::kJson) {
    std::cout << json_of(trace, laws, counts).dump(2) << '\n';
  } else {
    std::cout << text_of(trace, laws, counts);
  }
  return laws.empty() ? 2 : counts.broken.empty() ? 0 : 1;
}

}  // namespace

Manual laws_manual() {
  po::options_description named("Options");
  add_obeyed_option(named);
  add_format_option(named);
  add_help_option(named);
  return {
      .name = "laws",
      .summary = "judge a trace by itself, without a reference: products, sums and copies",
      .synopses = {"TRACE [options]"},
      .description = {"Asks what the numbers of one trace must say of one another: what a linear "
                      "module returns "
                      "is its input times its weight, the gradients of both follow from the "
                      "gradient of that, a "
                      "reduced gradient is the sum over micro-batches and ranks, the clipping norm "
                      "that of all "
                      "reduced gradients, and ranks that hold the same part hold the same bits.",
                      "No reference, no noise pass and no forced pass is needed. What no law "
                      "speaks of, norms, "
                      "activations, attention, losses and updates, is not judged: for that, use "
                      "ttrace check."},
      .options = named,
      .run = run_laws,
      .exit_codes = {{"0", "all laws hold"},
                     {"1", "a law is broken"},
                     {"2", "no law could be asked, or bad usage"}},
      .examples = {{"ttrace laws runs/1/candidate", "judge a candidate by itself"},
                   {"ttrace laws --reference runs/1/reference runs/1/candidate",
                    "the same, but leave out what the reference does not obey either"}}};
}

}  // namespace ttrace::cli
