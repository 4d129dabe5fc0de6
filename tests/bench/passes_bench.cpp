// The cost of a check beyond reference and candidate: noise passes, forced passes and the
// comparison, in steps of the reference program (BF16, one thread).
#include "bench/figures.h"
#include "bench/measure.h"
#include "support/derived_config.h"
#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace ttrace::bench {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr int kNoisePasses = 5;

struct Size {
  const char* name;  // "d256"
  int hidden = 0;
  int steps = 0;        // measured
  int repetitions = 0;  // of each run; the shortest counts
};

class Programs {
 public:
  explicit Programs(const Size& size) : steps_(size.steps), repetitions_(size.repetitions) {
    testing::write_derived_config(std::string(TTRACE_SOURCE) + "/examples/tiny.yaml",
                                  {{"model.layers", "8"},
                                   {"model.hidden", std::to_string(size.hidden)},
                                   {"model.ffn", std::to_string(4 * size.hidden)},
                                   {"model.activation", "gelu"},
                                   {"model.sequence", "128"},
                                   {"data.micro_batches", "2"}},
                                  config_);
  }

  // Seconds of one step under `variables`; what a program does once falls out.
  [[nodiscard]] double step(const Variables& variables) const {
    return of_a_step([&](int steps) { return train(variables, steps); });
  }

  // Seconds of the comparison of one step.
  [[nodiscard]] double comparison() const {
    return of_a_step([&](int steps) { return compare("0:" + std::to_string(steps)); });
  }

  [[nodiscard]] Variables reference() const {
    return {{"TTRACE_PASS", "reference"}, {"TTRACE_DIR", folder("reference")}};
  }
  [[nodiscard]] Variables candidate() const {
    return {{"TTRACE_PASS", "candidate"},
            {"TTRACE_DIR", folder("candidate")},
            {"TTRACE_REFERENCE", folder("reference")}};
  }
  [[nodiscard]] Variables noise(int seed) const {
    return {{"TTRACE_PASS", "noise"},
            {"TTRACE_REFERENCE", folder("reference")},
            {"TTRACE_NOISE_SEED", std::to_string(seed)}};
  }
  [[nodiscard]] Variables forced(const std::string& precision, const std::string& name) const {
    return {{"TTRACE_PASS", "forced"},
            {"TTRACE_DIR", folder(name)},
            {"TTRACE_REFERENCE", folder("reference")},
            {"TTRACE_CANDIDATE", folder("candidate")},
            {"TTRACE_PRECISION", precision}};
  }
  // One run of all steps, for what others need.
  void run(const Variables& variables) const { static_cast<void>(train(variables, 1 + steps_)); }

 private:
  // The shortest run of all steps less the shortest of one: differences of pairs would be as much
  // too short as their one-step run was disturbed.
  template <class Run>
  [[nodiscard]] double of_a_step(Run run) const {
    std::vector<double> one;
    std::vector<double> all;
    for (int i = 0; i < repetitions_; ++i) {
      one.push_back(run(1));
      all.push_back(run(1 + steps_));
    }
    return (shortest(all) - shortest(one)) / steps_;
  }

  [[nodiscard]] std::string folder(const std::string& name) const {
    return folder_ / ("run/" + name);
  }

  [[nodiscard]] double train(Variables variables, int steps) const {
    variables["OMP_NUM_THREADS"] = "1";
    // Removing the files of an earlier run does not belong to a step.
    if (const auto written = variables.find("TTRACE_DIR"); written != variables.end()) {
      std::filesystem::remove_all(written->second);
    }
    if (variables.contains("TTRACE_PASS")) {
      variables["TTRACE_STEPS"] = "0:" + std::to_string(steps);
    }
    return seconds_of(
        {std::string(TTRACE_BIN) + "/ttrace_reference",
         "--config",
         config_,
         "--precision",
         variables.contains("TTRACE_PRECISION") ? variables.at("TTRACE_PRECISION") : "bf16",
         "--steps",
         std::to_string(steps)},
        variables);
  }

  [[nodiscard]] double compare(const std::string& steps) const {
    return seconds_of({std::string(TTRACE_BIN) + "/ttrace",
                       "diff",
                       folder_ / "run",
                       "--steps",
                       steps,
                       "--threads",
                       "1"},
                      {});
  }

  static double seconds_of(const std::vector<std::string>& arguments, const Variables& variables) {
    const testing::ProcessResult result =
        testing::run_process({.arguments = arguments,
                              .environment = variables,
                              .directory = "",
                              .timeout = std::chrono::minutes(10)});
    TTRACE_CHECK(
        result.exit_code == 0, UsageError, arguments.front(), " failed: ", result.err, result.out);
    return result.seconds;
  }

  const testing::TemporaryDirectory folder_;
  const std::string config_ = folder_ / "config.yaml";
  const int steps_;
  const int repetitions_;
};

void measure(const Size& size, nlohmann::ordered_json& figures) {
  const Programs programs(size);
  const double plain = programs.step({});
  const double reference = programs.step(programs.reference()) / plain;  // leaves its trace
  programs.run(programs.candidate());
  for (int seed = 1; seed <= kNoisePasses; ++seed) {
    programs.run(programs.noise(seed));
  }
  const double noise = programs.step(programs.noise(kNoisePasses + 1)) / plain;
  const double wide = programs.step(programs.forced("f32", "forced-wide")) / plain;
  const double native = programs.step(programs.forced("bf16", "forced-native")) / plain;
  const double comparison = programs.comparison() / plain;
  const std::string suffix = std::string("_") + size.name;
  figures["noise_over_reference" + suffix] = noise;
  figures["forced_wide_over_reference" + suffix] = wide;
  figures["forced_native_over_reference" + suffix] = native;
  figures["comparison_over_reference" + suffix] = comparison;
  const double all = kNoisePasses * noise + wide + native + comparison;
  figures["passes_over_reference" + suffix] = all;
  figures["passes_over_reference_pass" + suffix] = all / reference;
}

void run(nlohmann::ordered_json& figures) {
  measure({"d256", 256, 4, 3}, figures);
  // A step takes ten seconds and more: long enough to be measured once.
  measure({"d1024", 1024, 1, 1}, figures);
}

}  // namespace

Group passes_group() {
  return {
      "passes",
      {{"passes_over_reference_d256",
        "at most 10",
        "steps of five noise passes, both forced passes and their comparison, over a step of "
        "the reference program untraced: BF16, 8 layers, hidden size 256"},
       {"passes_over_reference_pass_d256", "", "the same over a step that is traced and written"},
       {"noise_over_reference_d256", "", "one noise pass of it"},
       {"forced_wide_over_reference_d256", "", "the forced pass in F32"},
       {"forced_native_over_reference_d256", "", "the forced pass in BF16"},
       {"comparison_over_reference_d256", "", "`ttrace diff` of one step, one thread"},
       {"passes_over_reference_d1024", "at most 12", "the same with a hidden size of 1024"},
       {"passes_over_reference_pass_d1024", "", ""},
       {"noise_over_reference_d1024", "", ""},
       {"forced_wide_over_reference_d1024", "", ""},
       {"forced_native_over_reference_d1024", "", ""},
       {"comparison_over_reference_d1024", "", ""}},
      run};
}

}  // namespace ttrace::bench
