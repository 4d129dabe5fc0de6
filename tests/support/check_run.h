// One `ttrace check` of the example programs, as a process, and what its report says.
//
// Thread-safety: free functions; checks in different folders may run at the same time.
#pragma once

#include "support/derived_config.h"
#include "support/patience.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace ttrace::testing {

// The configuration that both programs train.
struct TrainingRun {
  std::string config;  // file
  std::string precision;
  int seed = 1;
  int steps = 1;
};

// Commands of the programs in the folder `bin`. `layout`: options of megatron_mini, "--tp 2 --sp".
[[nodiscard]] std::string reference_command(const std::string& bin, const TrainingRun& run);
[[nodiscard]] std::string candidate_command(const std::string& bin,
                                            const std::string& run_ranks,
                                            const TrainingRun& run,
                                            const std::string& layout);

// Ranks of a layout: --tp times --cp times --dp times --pp.
[[nodiscard]] int ranks_of(const std::string& layout);

struct CheckRequest {
  std::string program;     // ttrace
  std::string reference;   // a command, or the folder of a stored reference
  std::string rerun = {};  // the command of a stored reference, for candidates that route otherwise
  std::string candidate;   // a command
  std::string folder;      // made by the check; holds `reference` and `candidate` afterwards
  int steps = 1;
  int noise = 5;                          // passes, where `reference` is a command
  int timeout_s = kHang.count();          // that a pass may take
  std::vector<std::string> options = {};  // further ones of `ttrace check`
};

struct CheckResult {
  std::string problem;  // why there is no verdict; empty if there is one
  bool diverged = false;
  std::string first_id;             // of the first divergence
  std::string signature = "none";   // of its diagnosis
  std::string probable_cause;       // the sentence of that
  int diagnoses = 0;                // that the report names
  double error_over_bound = 0.0;    // of the first divergence; 0 if it has no number
  nlohmann::json report = nullptr;  // all of it, where there is a verdict
  double seconds = 0.0;
};

[[nodiscard]] CheckResult run_check(const CheckRequest& request);

// The result that the finished check of `request` would have had with --no-forced: `ttrace diff`
// judges a folder again that links to all of its passes but the forced ones.
[[nodiscard]] CheckResult judge_without_forced(const CheckRequest& request);

// A number of a report, in which NaN and Inf are texts.
[[nodiscard]] double number_of(const nlohmann::json& value);

}  // namespace ttrace::testing
