#include "end_to_end/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

namespace ttrace::testing {
namespace {

const std::string kBin = TTRACE_BIN;
const std::string kSource = TTRACE_SOURCE;

}  // namespace

std::string example(const std::string& name) {
  return kSource + "/examples/" + name + ".yaml";
}

std::string reference_of(const TrainingRun& training) {
  return reference_command(kBin, training);
}

std::string candidate_of(const TrainingRun& training, const std::string& layout) {
  return candidate_command(kBin, kSource + "/examples/megatron_mini/run_ranks", training, layout);
}

ProcessResult program(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kBin + "/" + name);
  ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = {{"OMP_NUM_THREADS", "1"}};  // many small operators, while other tests run
  return run_process(options);
}

ProcessResult ttrace_program(std::vector<std::string> arguments) {
  return program("ttrace", std::move(arguments));
}

std::string digests_of(const std::string& command, std::map<std::string, std::string> environment) {
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", command + " --digest"};
  options.environment = std::move(environment);
  const ProcessResult result = run_process(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("digest"));
  return result.out;
}

ProcessResult Checks::run(const std::string& name,
                          const std::string& layout,
                          const std::vector<std::string>& options) {
  last_ = directory_ / name;
  std::vector<std::string> arguments = {"check",
                                        "--reference",
                                        reference_.empty() ? reference_of(training_) : reference_,
                                        "--candidate",
                                        candidate_of(training_, layout),
                                        "--steps",
                                        "0:" + std::to_string(training_.steps),
                                        "-o",
                                        last_};
  if (!reference_.empty()) {
    arguments.emplace_back("--no-forced");
  }
  arguments.insert(arguments.end(), options.begin(), options.end());
  ProcessResult result = ttrace_program(std::move(arguments));
  if (reference_.empty() && result.exit_code != 2) {
    reference_ = last_ + "/reference";
  }
  return result;
}

nlohmann::json Checks::report() const {
  return nlohmann::json::parse(read_text(last_ + "/report.json"));
}

}  // namespace ttrace::testing
