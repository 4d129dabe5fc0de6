// The example programs as a user starts them: their commands, `ttrace` itself, and checks that
// share a reference.
//
// Thread-safety: independent objects may be used from different threads.
#pragma once

#include "support/check_run.h"
#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {

// A file of examples/: "tiny" is tiny.yaml.
[[nodiscard]] std::string example(const std::string& name);

// `layout`: options of megatron_mini, "--tp 2 --sp".
[[nodiscard]] std::string reference_of(const TrainingRun& training);
[[nodiscard]] std::string candidate_of(const TrainingRun& training, const std::string& layout);

// A program of the build with these arguments; the second one is `ttrace`.
[[nodiscard]] ProcessResult program(const std::string& name, std::vector<std::string> arguments);
[[nodiscard]] ProcessResult ttrace_program(std::vector<std::string> arguments);

// Digests of loss, gradients and updated parameters after each step, as a program prints them.
[[nodiscard]] std::string digests_of(const std::string& command,
                                     std::map<std::string, std::string> environment);

// Checks of one training, each in a folder of its own: the first one makes the reference, which the
// others reuse. Only the first one has forced passes, which take as long as all else.
class Checks {
 public:
  explicit Checks(TrainingRun training) : training_(std::move(training)) {}

  // `options` are further ones of `ttrace check`.
  [[nodiscard]] ProcessResult run(const std::string& name,
                                  const std::string& layout,
                                  const std::vector<std::string>& options = {});

  // The result of the latest run.
  [[nodiscard]] nlohmann::json report() const;
  [[nodiscard]] const std::string& folder() const { return last_; }

 private:
  TemporaryDirectory directory_;
  TrainingRun training_;
  std::string reference_;  // folder; empty until there is one
  std::string last_;
};

}  // namespace ttrace::testing
