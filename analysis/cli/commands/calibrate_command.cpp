#include "analysis/cli/commands/calibrate_command.h"

#include "analysis/bounds/calibration.h"
#include "analysis/cli/options/columns.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/diff.h"
#include "analysis/findings/wording.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// One run given twice would count for two.
void check_folders(const std::vector<std::string>& runs) {
  TTRACE_CHECK(!runs.empty(), UsageError, "calibrate takes folders made by `ttrace check`");
  std::set<fs::path> seen;
  for (const std::string& run : runs) {
    TTRACE_CHECK(fs::is_directory(run), UsageError, "there is no folder ", run);
    TTRACE_CHECK(is_run_directory(run),
                 UsageError,
                 run,
                 " has no reference/ and candidate/ inside, so it was not made by ttrace check; "
                 "leave it out");
    TTRACE_CHECK(seen.insert(fs::canonical(run / fs::path("candidate"))).second,
                 UsageError,
                 run,
                 " is given twice; name every run once");
  }
}

double rate_of(const po::variables_map& values) {
  const auto rate = values["rate"].as<double>();
  TTRACE_CHECK(rate > 0.0 && rate <= 0.5,
               UsageError,
               "--rate is ",
               rate,
               "; it must be above 0 and at most 0.5");
  return rate;
}

Report judged(const std::string& run,
              int threads,
              const std::optional<Calibration>& calibration = {}) {
  DiffOptions options;
  options.threads = threads;
  options.calibration = calibration;
  return judge(find_pair("calibrate", {run}), options, Completeness::kWhole);
}

// With how many of its own runs raise an alarm under it.
Calibration calibrated(const std::vector<std::string>& folders,
                       double rate,
                       Vouched vouched,
                       int threads) {
  std::vector<CleanRun> runs;
  for (const std::string& folder : folders) {
    runs.push_back(clean_run(judged(folder, threads), folder, vouched));
  }
  Calibration calibration = calibrate(runs, rate, vouched);
  const Calibration limits = calibration;
  for (const std::string& folder : folders) {
    calibration.alarms += judged(folder, threads, limits).diverged() ? 1 : 0;
  }
  return calibration;
}

void print_table(const Calibration& calibration) {
  std::vector<std::vector<std::string>> lines{
      {"class", "statistic", "runs", "largest", "shipped", "calibrated"}};
  for (const CalibratedLimit& entry : calibration.table) {
    lines.push_back({std::string(name_of(entry.key.tensor_class)),
                     std::string(name_of(entry.key.statistic)),
                     std::to_string(entry.runs),
                     short_number(entry.largest),
                     short_number(shipped_limit(entry.key)),
                     short_number(entry.limit)});
  }
  write_columns(std::cout, lines);
}

// "2 of 20 (1.2 % to 31.7 %)"
std::string alarms_text(std::size_t alarms, std::size_t runs) {
  const RateInterval interval = rate_interval(alarms, runs);
  return std::to_string(alarms) + " of " + std::to_string(runs) + " (" +
         short_number(100.0 * interval.from) + " % to " + short_number(100.0 * interval.to) + " %)";
}

void print_promise(const Calibration& calibration) {
  const std::size_t all = calibration.runs.size();
  std::cout << '\n'
            << counted(static_cast<std::int64_t>(all), "clean run", "clean runs")
            << (calibration.vouched == Vouched::kYes ? ", vouched for," : "") << " in "
            << calibration.precision << ", "
            << counted(static_cast<std::int64_t>(calibration.table.size()), "limit", "limits")
            << ": at most " << short_number(100.0 * calibration.rate)
            << " % of clean runs are expected to raise an alarm; the runs alone show that it is "
               "below "
            << short_number(100.0 * calibration.rate_bound())
            << " % (95 %)\nof all runs given, with 95 % confidence: "
            << alarms_text(calibration.alarms_shipped, all)
            << " raise an alarm under the shipped limits, " << alarms_text(calibration.alarms, all)
            << " under these\n";
}

}  // namespace

Manual calibrate_manual() {
  po::options_description named("Options");
  named.add_options()(
      "output,o",
      po::value<std::string>()->value_name("FILE")->default_value("calibration.json"),
      "file to write")("rate",
                       po::value<double>()->default_value(0.01, "0.01")->value_name("R"),
                       "part of all clean runs that may raise a false alarm")(
      "vouched",
      "take runs that raise an alarm under the shipped limits too: you know that all of them are "
      "right. A finding that no limit can excuse, as of structure or equality, is still refused")(
      "threads",
      po::value<int>()->default_value(0)->value_name("N"),
      "threads that compare; 0: all cores. The limits do not depend on it");
  add_help_option(named);
  return {
      .name = "calibrate",
      .summary = "limits for a program of one's own, from runs known to be right",
      .synopses = {"RUN... [options]"},
      .description =
          {"Every RUN is a folder made by ttrace check of a run known to be right: "
           "other seeds, batches and layouts of one program, in one precision. The runs "
           "are judged again; for every class of tensors and statistic the limit follows "
           "from the largest value of each run, so that no more than the stated rate of "
           "clean runs exceeds any of them (docs/verdict.md).",
           "`ttrace check` and `ttrace diff` take the file as --calibration. With fewer "
           "than 20 runs the stated rate is an extrapolation.",
           "A run that raises an alarm under the shipped limits is refused, unless --vouched says "
           "that it is right: without such runs the limits would follow from those that need them "
           "least. The output and the file say how many of all runs raise an alarm under the "
           "shipped limits, and how many under the new ones."},
      .options = named,
      .exit_codes =
          {{"0", "the file was written"},
           {"2",
            "nothing was written: a run with a finding (with --vouched: one that no limit "
            "can excuse), several precisions, an existing file, bad usage"}},
      .examples = {{"ttrace calibrate runs/clean-* -o calibration.json",
                    "limits from all runs named clean-..."},
                   {"ttrace diff runs/7 --calibration calibration.json", "judge a run by them"}}};
}

int run_calibrate(const Arguments& arguments) {
  const Manual manual = calibrate_manual();
  const po::variables_map values = parse(arguments, manual.options, "run");
  if (values.count("help") != 0) {
    print_help(std::cout, manual);
    return 0;
  }
  const std::vector<std::string> folders = words_of(values, "run");
  const auto& file = values["output"].as<std::string>();
  const double rate = rate_of(values);
  const int threads = whole_number(values, "threads", 0);
  check_folders(folders);
  TTRACE_CHECK(!fs::exists(file),
               UsageError,
               file,
               " exists already; choose another file for -o, or remove it");
  const Vouched vouched = values.count("vouched") != 0 ? Vouched::kYes : Vouched::kNo;
  const Calibration calibration = calibrated(folders, rate, vouched, threads);
  std::ostringstream text;
  write_calibration(text, calibration);
  replace_file(file, text.str());
  print_table(calibration);
  print_promise(calibration);
  std::cout.flush();
  if (folders.size() < kFewRuns) {
    log(LogLevel::kWarning,
        "the stated rate is an extrapolation from " +
            counted(static_cast<std::int64_t>(folders.size()), "run", "runs") + "; give at least " +
            std::to_string(kFewRuns));
  }
  return 0;
}

}  // namespace ttrace::cli
