#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/reports/explain.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// The position in the report, or an error that names the nearest ids.
std::size_t position_of(const std::string& id, const Report& report, const StoredPair& pair) {
  std::vector<std::string> ids;
  for (const TensorVerdict& tensor : report.tensors) {
    ids.push_back(to_string(tensor.id));
  }
  return find_tensor(
      ids, id, pair.run.empty() ? pair.reference + " and " + pair.candidate : pair.run);
}

std::size_t first_divergence_of(const Report& report, const StoredPair& pair) {
  TTRACE_CHECK(report.first_divergence,
               UsageError,
               fmt::format("{} has no first divergence to explain; name a tensor, which `ttrace ls "
                           "{}/candidate` lists",
                           pair.run,
                           pair.run));
  return *report.first_divergence;
}

int run_explain(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  DiffOptions judging;
  judging.threads = threads_of(values);
  read_judging_options(values, judging);
  std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(!words.empty() && words.size() <= 3,
               UsageError,
               fmt::format("explain needs a folder made by ttrace check, and a tensor id unless it "
                           "is to explain the first divergence; or a reference, a candidate and "
                           "a tensor id; but {} given",
                           words_given(words)));
  std::string id;
  if (words.size() > 1) {
    id = words.back();
    words.pop_back();
  }
  StoredPair pair = find_pair("explain", words);
  read_rename_option(values, pair);
  const Report report = judge(pair, judging, completeness_of(values));
  const Explanation explanation = explain(
      report, id.empty() ? first_divergence_of(report, pair) : position_of(id, report, pair));
  if (format == ReportFormat::kJson) {
    write_json(std::cout, explanation);
  } else {
    write_text(std::cout, explanation);
  }
  return exit_code(explanation);
}

}  // namespace

Manual explain_manual() {
  po::options_description named("Options");
  add_judging_options(named);
  add_rename_option(named);
  add_partial_option(named);
  add_format_option(named);
  add_threads_option(named);
  add_help_option(named);
  return {
      .name = "explain",
      .summary = "explain why one tensor got its verdict",
      .synopses = {"RUN [ID] [options]", "REFERENCE CANDIDATE ID [options]"},
      .description = {"Judges two stored traces again, as diff does, and explains the verdict of "
                      "one tensor: every bound that applies, the one that decides, the arithmetic "
                      "with its numbers, what was recorded before the tensor, and the smallest "
                      "error that the check would have noticed.",
                      "RUN is a folder made by ttrace check; without ID, its first divergence is "
                      "explained. With --format json, it prints the "
                      "tensor's object from the report of diff and adds the explanation."},
      .options = named,
      .run = run_explain,
      .exit_codes =
          {{"0", "the tensor is within its bounds"},
           {"1", "the tensor is a finding"},
           {"2", "there is no such tensor or trace, the tensor could not be judged, or bad usage"}},
      .examples = {{"ttrace explain runs/1", "explain the first divergence of the last check"},
                   {"ttrace explain runs/1 s0/m0/output/decoder.layers.0/0",
                    "explain the verdict of one output in the last check"}}};
}

}  // namespace ttrace::cli
