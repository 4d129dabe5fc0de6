// megatron_mini as a test runs it: a configuration and a text of its own in a temporary folder.
#pragma once

#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace megatron_mini::testing {

struct ConfigChange {
  std::string key;  // "section.key", or "key" at the top
  std::string value;
};

// Writes config.yaml, with what `changes` replaces or adds, and text.txt.
class MiniProgram {
 public:
  explicit MiniProgram(std::initializer_list<ConfigChange> changes = {})
      : MiniProgram(changes.begin(), changes.end()) {}
  [[nodiscard]] static MiniProgram with(const std::vector<ConfigChange>& changes) {
    return {changes.data(), changes.data() + changes.size()};
  }

  // `arguments` are separated by blanks; --config is added.
  [[nodiscard]] ttrace::testing::ProcessResult run(int ranks, const std::string& arguments) const;

  [[nodiscard]] std::string config() const { return folder_ / "config.yaml"; }
  [[nodiscard]] std::string text() const { return folder_ / "text.txt"; }

 private:
  MiniProgram(const ConfigChange* first, const ConfigChange* last);

  ttrace::testing::TemporaryDirectory folder_;
};

// What the program printed about one step.
struct PrintedStep {
  double loss = 0.0;
  double grad_norm = 0.0;
  std::string digest;  // empty without --digest
};

[[nodiscard]] std::vector<PrintedStep> parse_steps(const std::string& output);

[[nodiscard]] ttrace::testing::ProcessResult run_ranks(int ranks,
                                                       const std::vector<std::string>& command);

}  // namespace megatron_mini::testing
