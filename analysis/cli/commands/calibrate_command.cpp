#include "analysis/bounds/calibration.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/diff.h"
#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/core.h>

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
  TTRACE_CHECK(
      !runs.empty(), UsageError, "calibrate needs at least one folder made by `ttrace check`");
  std::set<fs::path> seen;
  for (const std::string& run : runs) {
    TTRACE_CHECK(fs::is_directory(run), UsageError, "there is no folder ", run);
    TTRACE_CHECK(is_run_directory(run),
                 UsageError,
                 fmt::format("{} was not made by ttrace check: it has no reference/ and candidate/ "
                             "inside; leave it out",
                             run));
    TTRACE_CHECK(seen.insert(fs::canonical(run / fs::path("candidate"))).second,
                 UsageError,
                 fmt::format("{} is given twice; name every run once", run));
  }
}

double rate_of(const po::variables_map& values) {
  const auto rate = values["rate"].as<double>();
  TTRACE_CHECK(rate > 0.0 && rate <= 0.5,
               UsageError,
               fmt::format("--rate is {}; it must be above 0 and at most 0.5", rate));
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
      {"statistic", "runs", "largest", "shipped", "calibrated"}};
  for (const CalibratedLimit& entry : calibration.table) {
    lines.push_back({std::string(name_of(entry.statistic)),
                     std::to_string(entry.runs),
                     short_number(entry.largest),
                     short_number(shipped_factor(entry.statistic)),
                     short_number(entry.limit)});
  }
  write_columns(std::cout, lines, {.indent = 0, .numbers_last = true});
}

// "2 of 20 (1.2 % to 31.7 %)"
std::string alarms_text(std::size_t alarms, std::size_t runs) {
  const RateInterval interval = rate_interval(alarms, runs);
  return fmt::format("{} of {} ({} % to {} %)",
                     alarms,
                     runs,
                     short_number(100.0 * interval.from),
                     short_number(100.0 * interval.to));
}

void print_promise(const Calibration& calibration) {
  const std::size_t all = calibration.runs.size();
  std::cout << fmt::format(
      "\n{}{} in {}, {}: at most {} % of clean runs are expected to raise an alarm; the runs alone "
      "show that it is below {} % (95 %)\nOf all runs given, {} raised an alarm under the shipped "
      "limits, and {} under these (95 % confidence)\n",
      counted(all, "clean run"),
      calibration.vouched == Vouched::kYes ? ", vouched for," : "",
      calibration.precision,
      counted(calibration.table.size(), "limit"),
      short_number(100.0 * calibration.rate),
      short_number(100.0 * calibration.rate_bound()),
      alarms_text(calibration.alarms_shipped, all),
      alarms_text(calibration.alarms, all));
}

int run_calibrate(const po::variables_map& values) {
  const std::vector<std::string> folders = words_of(values);
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
        fmt::format("the stated rate is an extrapolation from {}; give at least {} runs",
                    counted(folders.size(), "run"),
                    kFewRuns));
  }
  return 0;
}

}  // namespace

Manual calibrate_manual() {
  po::options_description named("Options");
  named.add_options()(
      "output,o", text_option("FILE")->default_value("calibration.json"), "file to write")(
      "rate",
      po::value<double>()->default_value(0.01, "0.01")->value_name("R"),
      "fraction of clean runs that may raise a false alarm")(
      "vouched",
      "also take runs that raise an alarm under the shipped limits: you vouch that all runs are "
      "right. A run is still refused if a tensor is missing, or differs where it must be equal, "
      "because no limit can excuse that")(
      "threads",
      po::value<int>()->default_value(0)->value_name("N"),
      "number of threads (0: all cores); the limits do not depend on it");
  add_help_option(named);
  return {
      .name = "calibrate",
      .summary = "derive limits for your own program from runs known to be right",
      .synopses = {"RUN... [options]"},
      .description =
          {"Every RUN is a folder that ttrace check made from a run known to be right: "
           "other seeds, batches and layouts of one program, in one precision. TTrace "
           "judges the runs again. It derives a kernel factor for each of T2, T1 and their "
           "factors from the largest that any check of a run would have taken, so that "
           "at most the stated rate of clean runs exceeds any (docs/verdict_reference.md).",
           "Pass the file to `ttrace check` and `ttrace diff` as --calibration. With "
           "fewer than 20 runs, the stated rate is an extrapolation.",
           "A run that raises an alarm under the shipped limits is refused, unless you "
           "vouch with --vouched that all runs are right: without such runs, the limits "
           "would follow from the runs that need them least. The output and the file "
           "state how many of all runs raise an alarm under the shipped limits, and how "
           "many under the new ones."},
      .options = named,
      .run = run_calibrate,
      .exit_codes = {{"0", "the file was written"},
                     {"2",
                      "nothing was written: a run has a finding (with --vouched: one that no limit "
                      "can excuse), the runs have several precisions, the file exists, or bad "
                      "usage"}},
      .examples = {
          {"ttrace calibrate runs/clean-* -o calibration.json",
           "derive limits from all runs named clean-..."},
          {"ttrace diff runs/7 --calibration calibration.json", "judge a run by these limits"}}};
}

}  // namespace ttrace::cli
