#include "diff_command.h"

#include "progress.h"
#include "report_output.h"
#include "run_directory.h"

#include <ttrace/error.h>

#include <filesystem>
#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr const char* kUsage =
    "Usage: ttrace diff REFERENCE CANDIDATE [options]\n"
    "       ttrace diff RUN [options]              RUN is a folder made by ttrace check\n\n"
    "Judges two stored traces again without running anything.\n\n"
    "Exit code: 0 within bounds, 1 divergence, 2 could not compare.\n";

struct TracePair {
  std::string reference;
  std::string candidate;
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
  return {folders[0] + "/reference", folders[0] + "/candidate"};
}

}  // namespace

int run_diff(const Arguments& arguments) {
  po::options_description named("Options");
  add_report_options(named);
  named.add_options()("help,h", "print this text");
  const po::variables_map values = parse(arguments, named, "trace");
  if (values.count("help") != 0) {
    std::cout << kUsage << '\n' << named;
    return 0;
  }
  const ReportOptions options = report_options(values);
  const TracePair traces =
      find_traces(values.count("trace") == 0 ? std::vector<std::string>()
                                             : values["trace"].as<std::vector<std::string>>());
  ProgressLine progress;
  const Report report = compare(traces.reference, traces.candidate, options.threads, progress);
  write_report(std::cout, report, options);
  return exit_code(report);
}

}  // namespace ttrace::cli
