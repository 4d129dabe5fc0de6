// Tracing changes no bit of what a program computes, whatever it is made of.
#include "end_to_end/small_run.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace ttrace::testing {
namespace {

struct Feature {
  std::string name;
  ConfigChanges changes;
  std::string precision;
  std::string layout;
};

std::ostream& operator<<(std::ostream& out, const Feature& feature) {
  return out << feature.name;
}

class TracedFeatures : public ::testing::TestWithParam<Feature> {};

// Two steps: the second shows whether the first was left as it was.
TEST_P(TracedFeatures, GiveTheSameBitsAsUntracedOnes) {
  const Feature& feature = GetParam();
  const SmallRun run(feature.changes, feature.precision, 2);
  const std::string reference = run.folder("reference");
  EXPECT_EQ(
      digests_of(run.reference(), {}),
      digests_of(
          run.reference(),
          {{"TTRACE_PASS", "reference"}, {"TTRACE_DIR", reference}, {"TTRACE_STEPS", "0:2"}}));
  EXPECT_EQ(digests_of(run.candidate(feature.layout), {}),
            digests_of(run.candidate(feature.layout),
                       {{"TTRACE_PASS", "candidate"},
                        {"TTRACE_DIR", run.folder("candidate")},
                        {"TTRACE_REFERENCE", reference},
                        {"TTRACE_STEPS", "0:2"},
                        {"TTRACE_COLLECTIVES", "1"}}));
}

// Both programs start from the weights that a first run trained; each alone, without a session.
TEST(TrainedStart, IsThatOfBothProgramsInAnyLayout) {
  const TrainingRun training{.config = example("tiny"), .precision = "bf16", .steps = 3};
  const TemporaryDirectory folder;
  static_cast<void>(digests_of(reference_of(training),
                               {{"TTRACE_PASS", "reference"},
                                {"TTRACE_DIR", folder / "trained"},
                                {"TTRACE_STEPS", "2"},
                                {"TTRACE_FILTER", "/param_next/"}}));
  const ConfigChanges changes = {{"start", folder / "trained"}};
  write_derived_config(example("tiny"), changes, folder / "run.yaml");
  const auto loss_of = [](const std::string& command) {
    ProcessOptions options;
    options.arguments = {"sh", "-c", command};
    const ProcessResult result = run_process(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::stod(result.out.substr(std::string("step 0 loss ").size()));
  };
  const TrainingRun fresh{.config = example("tiny"), .precision = "f64"};
  const TrainingRun trained{.config = folder / "run.yaml", .precision = "f64"};
  const double before = loss_of(reference_of(fresh));
  const double after = loss_of(reference_of(trained));
  EXPECT_LT(after, before);
  EXPECT_NEAR(loss_of(candidate_of(trained, "--tp 2 --sp")), after, 1e-8 * after);
}

INSTANTIATE_TEST_SUITE_P(
    EndToEnd,
    TracedFeatures,
    ::testing::Values(
        Feature{"stages_in_turn_with_recompute_and_dropout",
                {{"model.layers", "4"},
                 {"model.tied", "true"},
                 {"model.dropout", "0.1"},
                 {"model.attention_dropout", "0.1"}},
                "bf16",
                "--pp 2 --vpp 2 --recompute full"},
        Feature{"experts_and_distributed_optimizer_with_overlap",
                {{"model.experts", "4"}, {"model.top_k", "2"}, {"model.expert_bias", "0.1"}},
                "bf16",
                "--dp 2 --ep 2 --zero1 --overlap-gather"},
        Feature{"ring_in_fp8",
                {{"fp8.recipe", "delayed"}, {"fp8.history", "4"}, {"fp8.bf16_ends", "0"}},
                "fp8",
                "--cp 2"}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace ttrace::testing
