// The program as a user runs it: its lines, its refusals, and that tracing changes no bit.
#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kRun = R"(
model: {layers: 2, hidden: 16, heads: 4, query_groups: 2, ffn: 24, vocabulary: 257, sequence: 8,
        activation: gelu, tied: true, rotary_base: 10000, norm_epsilon: 1e-5}
data: {file: text, seed: 1, micro_batch_size: 2, micro_batches: 2}
optimizer: {learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: 1}
precision: f32
)";

class Program : public ::testing::Test {
 protected:
  Program() {
    std::ofstream(folder_ / "run.yaml") << kRun;
    std::ofstream(folder_ / "text") << "Rivers run to the sea, yet the sea is not full.";
  }
  [[nodiscard]] ProcessResult run(std::vector<std::string> arguments,
                                  std::map<std::string, std::string> environment = {}) const {
    arguments.insert(arguments.begin(), TTRACE_REFERENCE_PROGRAM);
    return run_process({.arguments = std::move(arguments),
                        .environment = std::move(environment),
                        .directory = folder_.path()});
  }
  TemporaryDirectory folder_;
};

TEST_F(Program, PrintsOneLinePerStep) {
  const ProcessResult result = run({"--config", "run.yaml", "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              MatchesRegex("step 0 loss [0-9.]+ grad_norm [0-9.]+\n"
                           "step 1 loss [0-9.]+ grad_norm [0-9.]+\n"));
}

TEST_F(Program, EndsLinesWithADigestWhenAsked) {
  const ProcessResult result = run({"--config", "run.yaml", "--digest"});
  EXPECT_THAT(result.out, MatchesRegex("step 0 loss .* digest [0-9a-f]+\n"));
}

TEST_F(Program, OptionsReplaceTheConfiguration) {
  const std::string plain = run({"--config", "run.yaml"}).out;
  EXPECT_EQ(run({"--config", "run.yaml", "--seed", "1", "--precision", "f32"}).out, plain);
  EXPECT_NE(run({"--config", "run.yaml", "--seed", "2"}).out, plain);
  EXPECT_NE(run({"--config", "run.yaml", "--micro-batches", "3"}).out, plain);
  EXPECT_NE(run({"--config", "run.yaml", "--precision", "bf16"}).out, plain);
}

TEST_F(Program, HelpNamesEveryOption) {
  const ProcessResult result = run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* option : {"--config",
                             "--precision",
                             "--seed",
                             "--micro-batches",
                             "--steps",
                             "--annotations",
                             "--device",
                             "--digest"}) {
    EXPECT_THAT(result.out, HasSubstr(option));
  }
}

TEST_F(Program, BadInputIsOneSentenceAndExitCode2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "--config FILE is missing"},
      {{"--config", "absent.yaml"}, "cannot read the configuration absent.yaml"},
      {{"--config", "run.yaml", "--precision", "f16"}, "use f64, f32, bf16, fp8 or fp8_f32"},
      {{"--config", "run.yaml", "--micro-batches", "0"}, "data.micro_batches is 0"},
      {{"--config", "run.yaml", "--steps", "0"}, "--steps is 0"},
      {{"--config", "run.yaml", "--step", "0", "extra"}, "see --help"},
      {{"--config", "run.yaml", "--annotations", "absent"}, "absent"},
      {{"--config", "run.yaml", "--device", "tpu"}, "--device is 'tpu'; use cpu or cuda"},
      {{"--config", "run.yaml", "--device", "xpu"}, "--device is xpu, which this build of PyTorch"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << sentence;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(sentence));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

// Where torch has CUDA, no GPU is to be seen.
TEST_F(Program, WithoutAGpuItSaysWhatIsMissingAndWhatHelps) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const ProcessResult result = run({"--config", "run.yaml", "--device", "cuda"});
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(
      result.err,
      ::testing::AnyOf(HasSubstr("ttrace_reference: --device cuda needs a CUDA build of PyTorch"),
                       HasSubstr("ttrace_reference: --device cuda finds no such device")));
  EXPECT_THAT(result.err, HasSubstr("or use --device cpu"));
}

TEST_F(Program, TracingChangesNoBit) {
  for (const char* precision : {"f64", "f32", "bf16"}) {
    const std::vector<std::string> arguments{
        "--config", "run.yaml", "--digest", "--steps", "2", "--precision", precision};
    const ProcessResult plain = run(arguments);
    const ProcessResult traced = run(arguments,
                                     {{"TTRACE_PASS", "reference"},
                                      {"TTRACE_DIR", folder_ / precision},
                                      {"TTRACE_ON_ERROR", "raise"}});
    EXPECT_EQ(traced.exit_code, 0) << traced.err;
    EXPECT_EQ(traced.out, plain.out) << precision;
    EXPECT_TRUE(std::filesystem::exists(folder_ / precision + "/step000000/rank00000.h5"));
  }
}

}  // namespace
}  // namespace ttrace::testing
