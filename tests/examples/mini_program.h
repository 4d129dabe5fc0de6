// megatron_mini as a test runs it: a configuration and a text of its own in a temporary folder.
#pragma once

#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <initializer_list>
#include <ostream>
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

  // `arguments` are separated by blanks; --config is added. `program` may be megatron_mini with a
  // device of the tests'.
  [[nodiscard]] ttrace::testing::ProcessResult run(
      int ranks,
      const std::string& arguments,
      const std::string& program = MEGATRON_MINI_PROGRAM) const;

  [[nodiscard]] std::string config() const { return folder_ / "config.yaml"; }
  [[nodiscard]] std::string text() const { return folder_ / "text.txt"; }

 private:
  MiniProgram(const ConfigChange* first, const ConfigChange* last);

  ttrace::testing::TemporaryDirectory folder_;
};

// The program's output for one step.
struct PrintedStep {
  double loss = 0.0;
  double grad_norm = 0.0;
  std::string digest;  // empty without --digest
};

[[nodiscard]] std::vector<PrintedStep> parse_steps(const std::string& output);

// The output of a run that must succeed.
[[nodiscard]] std::vector<PrintedStep> steps_of(const MiniProgram& program,
                                                int ranks,
                                                const std::string& arguments);

constexpr int kBadInput = 2;  // exit code

struct RankLayout {
  std::string name;
  int ranks;
  std::string flags;
};

// The text that GoogleTest prints next to a case's name.
std::ostream& operator<<(std::ostream& out, const RankLayout& layout);

// Losses and gradient norms differ by at most `tolerance`, relative.
void expect_equal(const std::vector<PrintedStep>& parallel,
                  const std::vector<PrintedStep>& single,
                  double tolerance);

// Every layout's losses and gradient norms in FP64 are the single rank's to twelve digits.
void expect_the_single_ranks_steps(const MiniProgram& program,
                                   const std::vector<RankLayout>& layouts,
                                   int steps);

[[nodiscard]] ttrace::testing::ProcessResult run_ranks(int ranks,
                                                       const std::vector<std::string>& command);

}  // namespace megatron_mini::testing
