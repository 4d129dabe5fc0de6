#include "support/check_run.h"

#include "support/run_process.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>
#include <sstream>
#include <vector>

namespace fs = std::filesystem;

namespace ttrace::testing {
namespace {

std::string options_of(const TrainingRun& run) {
  return " --config " + run.config + " --precision " + run.precision + " --seed " +
         std::to_string(run.seed) + " --steps " + std::to_string(run.steps);
}

// First and last line of what `command` complained about: the summary, and the end of the log.
std::string complaint(const ProcessResult& result, const std::string& command) {
  if (result.timed_out) {
    return command + " itself did not end";
  }
  std::string first;
  std::string last;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (start != std::string::npos) {
      last = line.substr(start);
      first = first.empty() ? last : first;
    }
  }
  if (first.empty()) {
    return command + " ended with status " + std::to_string(result.exit_code) + " and signal " +
           std::to_string(result.signal) + ", but printed nothing";
  }
  return first == last ? first : first + " ... " + last;
}

void read_report(const std::string& file, CheckResult& result) {
  result.report = nlohmann::json::parse(read_text(file));
  result.diverged = result.report.at("verdict") == "diverged";
  result.diagnoses = static_cast<int>(result.report.at("diagnoses").size());
  const nlohmann::json& first = result.report.at("first_divergence");
  if (first.is_null()) {
    return;
  }
  result.first_id = first.at("id");
  if (first.at("signature").is_string()) {
    result.signature = first.at("signature");
    result.probable_cause = first.at("probable_cause");
  }
  if (!first.at("bound").is_null() && number_of(first.at("bound")) > 0.0) {
    result.error_over_bound = number_of(first.at("error")) / number_of(first.at("bound"));
  }
}

CheckResult result_of(const ProcessResult& process,
                      const std::string& command,
                      const std::string& report) {
  CheckResult result;
  result.seconds = process.seconds;
  if (process.exit_code == 0 || process.exit_code == 1) {
    read_report(report, result);
  } else {
    result.problem = complaint(process, command);
  }
  return result;
}

}  // namespace

std::string reference_command(const std::string& bin, const TrainingRun& run) {
  return bin + "/ttrace_reference" + options_of(run);
}

std::string candidate_command(const std::string& bin,
                              const std::string& run_ranks,
                              const TrainingRun& run,
                              const std::string& layout) {
  const int ranks = ranks_of(layout);
  // One rank needs no mpirun, which takes longer to start than the program.
  const std::string start = ranks == 1 ? "" : run_ranks + " " + std::to_string(ranks) + " ";
  return start + bin + "/megatron_mini" + options_of(run) + (layout.empty() ? "" : " ") + layout;
}

int ranks_of(const std::string& layout) {
  static const std::regex axis("--(?:tp|cp|dp|pp) ([0-9]+)");
  int ranks = 1;
  for (std::sregex_iterator match(layout.begin(), layout.end(), axis), end; match != end; ++match) {
    ranks *= std::stoi((*match)[1].str());
  }
  return ranks;
}

CheckResult run_check(const CheckRequest& request) {
  ProcessOptions options;
  options.arguments = {request.program,
                       "check",
                       "--reference",
                       request.reference,
                       "--candidate",
                       request.candidate,
                       "--timeout",
                       std::to_string(request.timeout_s),
                       "--threads",
                       "1",
                       "-o",
                       request.folder};
  if (!request.rerun.empty()) {
    options.arguments.insert(options.arguments.end(), {"--rerun", request.rerun});
  } else {
    options.arguments.insert(options.arguments.end(),
                             {"--steps",
                              "0:" + std::to_string(request.steps),
                              "--noise",
                              std::to_string(request.noise)});
  }
  options.arguments.insert(options.arguments.end(), request.options.begin(), request.options.end());
  // Several checks share the machine.
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  return result_of(run_process(options), "ttrace check", request.folder + "/report.json");
}

CheckResult judge_without_forced(const CheckRequest& request) {
  const std::string folder = request.folder + "/without-forced";
  fs::create_directories(folder);
  for (const char* pass : {"reference", "candidate", "rerouted"}) {
    const fs::path stored = fs::path(request.folder) / pass;
    if (fs::exists(stored)) {
      fs::create_directory_symlink(fs::canonical(stored), folder + "/" + pass);
    }
  }
  ProcessOptions options;
  options.arguments = {request.program,
                       "diff",
                       folder,
                       "--threads",
                       "1",
                       "--format",
                       "json=" + folder + "/report.json"};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  return result_of(run_process(options), "ttrace diff", folder + "/report.json");
}

double number_of(const nlohmann::json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const double infinite = std::numeric_limits<double>::infinity();
  return text == "Inf" ? infinite : text == "-Inf" ? -infinite : std::nan("");
}

}  // namespace ttrace::testing
