// The programs as a user runs them: `ttrace check` with ttrace_reference and megatron_mini, in real
// processes.
#include "end_to_end/checks.h"
#include "end_to_end/small_run.h"
#include "fuzz_layouts/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Pair;

struct ParallelLayout {
  std::string name;
  std::string flags;
};

const ParallelLayout kDp2{"dp2", "--dp 2"};
const ParallelLayout kTp2{"tp2", "--tp 2"};
const ParallelLayout kTp2Sp{"tp2_sp", "--tp 2 --sp"};
const ParallelLayout kTp4Sp{"tp4_sp", "--tp 4 --sp"};
// Four micro-batches in all (examples/tiny.yaml), so two on each data-parallel rank.
const ParallelLayout kTp2SpDp2{"tp2_sp_dp2", "--tp 2 --sp --dp 2"};

const ParallelLayout kCp4{"cp4", "--cp 4"};
const ParallelLayout kTp2Cp2{"tp2_cp2", "--tp 2 --cp 2"};
const ParallelLayout kTp2SpCp2{"tp2_sp_cp2", "--tp 2 --sp --cp 2"};
const ParallelLayout kCp2Dp2{"cp2_dp2", "--cp 2 --dp 2"};

// Features in addition to the layout.
const ParallelLayout kRecomputeTwo{"recompute_two", "--cp 2 --recompute full --recompute-layers 2"};
const ParallelLayout kRecomputeCore{"recompute_core", "--tp 2 --cp 2 --recompute selective"};
const ParallelLayout kLayerTpSp{"layer_tp_sp", "--tp 4 --sp --layer-tp 1,4"};
const ParallelLayout kLayerDp{"layer_dp", "--tp 4 --layer-tp 4,2 --layer-dp"};
const ParallelLayout kLayerDpSp{"layer_dp_sp", "--tp 4 --sp --layer-tp 2,4 --layer-dp"};
const ParallelLayout kTp2SpDp2Zero1{"tp2_sp_dp2_zero1", "--tp 2 --sp --dp 2 --zero1"};
const ParallelLayout kCp2Dp2Zero1{"cp2_dp2_zero1", "--cp 2 --dp 2 --zero1"};
const ParallelLayout kTp2SpDp2Overlap{"tp2_sp_dp2_overlap",
                                      "--tp 2 --sp --dp 2 --zero1 --overlap-gather"};
const ParallelLayout kTp2SpPp2{"tp2_sp_pp2", "--tp 2 --sp --pp 2"};
const ParallelLayout kCp2Pp2{"cp2_pp2", "--cp 2 --pp 2"};
// These need the six layers of examples/pipeline.yaml.
const ParallelLayout kPp2Vpp3{"pp2_vpp3", "--pp 2 --vpp 3"};
const ParallelLayout kPp2Vpp2Uneven{"pp2_vpp2_uneven", "--pp 2 --vpp 2 --last-stage-layers 2"};
const ParallelLayout kPp4Uneven{"pp4_uneven",
                                "--pp 4 --first-stage-layers 1 --last-stage-layers 1"};

TrainingRun training(const std::string& precision,
                     const std::string& config = "tiny",
                     int steps = 1) {
  return {.config = example(config), .precision = precision, .steps = steps};
}

ProcessResult run(Checks& checks, const ParallelLayout& layout, const std::string& bug = "") {
  return bug.empty() ? checks.run(layout.name, layout.flags)
                     : checks.run(layout.name + "-" + bug, layout.flags + " --bug " + bug);
}

std::string first_divergence(const json& report) {
  return report["first_divergence"].is_null() ? ""
                                              : report["first_divergence"]["id"].get<std::string>();
}

void expect_clean(Checks& checks, const ParallelLayout& layout) {
  const ProcessResult result = run(checks, layout);
  EXPECT_EQ(result.exit_code, 0) << layout.name << "\n" << result.out << result.err;
  const json report = checks.report();
  EXPECT_EQ(report["verdict"], "clean");
  EXPECT_GT(report["tensors"].size(), 200U) << "a clean verdict over nothing is worth nothing";
}

// Layouts that one reference with its noise passes serves.
struct CleanCase {
  std::string name;
  TrainingRun training;
  std::vector<ParallelLayout> layouts;
};

void PrintTo(const CleanCase& clean, std::ostream* out) {
  *out << clean.name;
}

class CleanRuns : public ::testing::TestWithParam<CleanCase> {};

// `./dev fuzz-layouts` and the scoreboard have more of them, of other models and seeds.
TEST_P(CleanRuns, RaiseNoAlarm) {
  Checks checks(GetParam().training);
  for (const auto& layout : GetParam().layouts) {
    expect_clean(checks, layout);
  }
}

std::vector<CleanCase> clean_cases() {
  const std::vector<ParallelLayout> dense = {kTp4Sp, kTp2SpDp2, kLayerDp};
  const std::vector<ParallelLayout> context = {kTp2SpCp2, kCp2Dp2};
  const std::vector<ParallelLayout> zero1 = {kCp2Dp2Zero1, kTp2SpDp2Overlap};
  const std::vector<ParallelLayout> stages = {kPp2Vpp2Uneven, kCp2Pp2};
  const std::vector<ParallelLayout> features = {kRecomputeCore, kLayerTpSp, kLayerDpSp};
  return {{"dense_f32", training("f32"), dense},
          {"dense_bf16", training("bf16"), dense},
          // Packed documents, masked tokens, a loss per token.
          {"context_f32", training("f32", "packed"), context},
          {"context_bf16", training("bf16", "packed"), context},
          // Two steps: with overlap the second one's forward gathers what the first one updated.
          {"zero1_bf16", training("bf16", "tiny", 2), zero1},
          // Tied weights, several micro-batches under way, stages of their own depths.
          {"pipeline_bf16", training("bf16", "pipeline"), stages},
          // Dropout, few query groups, smoothed labels, a frozen layer; recomputation, layers of TP
          // degree 1, and of TP degree 2 with divided samples.
          {"features_bf16", training("bf16", "features"), features}};
}

INSTANTIATE_TEST_SUITE_P(EndToEnd,
                         CleanRuns,
                         ::testing::ValuesIn(clean_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// Every tensor is within 1e-12 x max(its norm, 1e-3 x the largest norm of its kind).
void expect_twelve_digits(const std::string& config, const std::vector<ParallelLayout>& layouts) {
  Checks checks(training("f64", config));
  for (const auto& layout : layouts) {
    const ProcessResult result = run(checks, layout);
    ASSERT_EQ(result.exit_code, 0) << layout.name << "\n" << result.out << result.err;
    const auto [distance, id] = fuzz_layouts::largest_distance(checks.report().at("tensors"));
    EXPECT_LE(distance, 1e-12) << layout.name << " " << id;
  }
}

TEST(EndToEnd, InFp64EveryTensorEqualsTheReferenceToTwelveDigits) {
  expect_twelve_digits("tiny", {kTp2SpDp2, kTp2SpCp2, kTp2SpDp2Zero1, kCp2Dp2Zero1});
}

TEST(EndToEnd, InFp64EveryTensorOfPackedDocumentsEqualsTheReferenceToTwelveDigits) {
  expect_twelve_digits("packed", {kCp4, kTp2Cp2, kCp2Dp2});
}

TEST(EndToEnd, InFp64EveryTensorOfAModelWithFeaturesEqualsTheReferenceToTwelveDigits) {
  expect_twelve_digits("features", {kTp4Sp, kRecomputeTwo, kRecomputeCore, kLayerTpSp});
}

TEST(EndToEnd, InFp64EveryTensorOfAPipelineEqualsTheReferenceToTwelveDigits) {
  expect_twelve_digits("tiny", {kTp2SpPp2});  // its embeddings are not tied
  expect_twelve_digits("pipeline", {kPp2Vpp3, kPp2Vpp2Uneven, kPp4Uneven, kTp2SpPp2, kCp2Pp2});
}

// Both ends of every transfer are there, and so are both stages' copies of the tied weight.
TEST(EndToEnd, TransfersAndTiedCopiesOfAPipelineAreInItsTrace) {
  Checks checks(training("f32", "pipeline"));
  expect_clean(checks, kPp2Vpp3);
  const json report = checks.report();
  std::set<std::string> ids;
  for (const auto& tensor : report["tensors"]) {
    ids.insert(tensor["id"]);
    if (tensor["id"] == "s0/main_grad/embedding.word_embeddings.weight/0") {
      EXPECT_EQ(tensor["ranks"], json({0, 1}));
    }
  }
  for (int layer = 0; layer < 5; ++layer) {
    for (const std::string slot : {"0", "1"}) {
      EXPECT_TRUE(
          ids.contains("s0/m3/received/decoder.layers." + std::to_string(layer) + "/" + slot))
          << layer << " " << slot;
    }
  }
}

struct PlantedBug {
  std::string name;
  ParallelLayout layout;
};

// Each bug runs in the cheapest layout that triggers it; the scoreboard has combined layouts.
const std::vector<PlantedBug> kPlantedBugs = {{"tp-forward-allreduce", kTp2},
                                              {"tp-backward-allreduce", kTp2},
                                              {"sp-norm-grad", kTp2Sp},
                                              {"dp-divisor", kDp2},
                                              {"scaled-linear", kTp2Sp},
                                              {"embedding-mask", kTp2},
                                              {"repeated-bias", kTp2},
                                              {"double-reduction", kTp2},
                                              {"dropped-microbatch", kDp2},
                                              {"stale-parameter", kTp2SpDp2},
                                              {"local-clip-norm", kTp2SpDp2},
                                              {"softmax-scale", kDp2},
                                              {"gather-order", kTp2Sp}};

// The declarations of `megatron_mini --list-bugs`, expected and hint, by name.
std::map<std::string, json> declared_bugs() {
  const ProcessResult result = program("megatron_mini", {"--list-bugs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, json> bugs;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const json entry = json::parse(line);
    bugs[entry.at("name")] = entry;
  }
  return bugs;
}

// Whether the declared pattern `key` of a bug is the whole of `text`.
bool matches(const std::string& text, const json& bug, const char* key) {
  return std::regex_match(text, std::regex(bug.at(key).get<std::string>()));
}

// Symptom: within every bound up to 30 % of the addend.
TEST(EndToEnd, PercentOfOneRanksAddendToTheGradientOfANormIsFound) {
  const SmallRun run({}, "bf16");
  const ProcessResult result =
      run.check("share", "--tp 2 --sp --mutant norm_grad_shard --mutant-size 0.01");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = run.report("share")["first_divergence"];
  EXPECT_EQ(first["id"], "s0/m0/param_grad/decoder.layers.0.input_layernorm.weight/0") << first;
  EXPECT_EQ(first["signature"], "wrong_addends");
  EXPECT_THAT(first["cause"], ::testing::HasSubstr("the addend of rank 1"));
}

// Symptom: "stale" on the rank that holds only padding, and on one whose rows the step moves by
// less than half an ulp of BF16, which the forced pass in F32 does not round away.
TEST(EndToEnd, AWrongLearningRateIsNotCalledStaleWhereNothingMoves) {
  const SmallRun run({}, "bf16");
  const ProcessResult result = run.check("rate", "--tp 4 --mutant optimizer_lr --mutant-size 0.3");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = run.report("rate")["first_divergence"];
  EXPECT_EQ(first["id"], "s0/master/embedding.word_embeddings.weight/0") << first;
  EXPECT_EQ(first["signature"], "optimizer");
  EXPECT_THAT(result.out, ::testing::Not(::testing::HasSubstr("before the step, s0/param/")));
}

// All of them run in BF16 with the limits of the clean runs, and all but the first without forced
// passes (see Checks::run). The scoreboard has the rates; here no bug may be missed. With the
// weights of a fresh start, the softmax is nearly uniform, and the declared output of softmax-scale
// stays within the bound of T2; the gradient of the same attention's key does not.
TEST(EndToEnd, PlantedBugsAreFoundAtTheDeclaredTensor) {
  Checks checks(training("bf16"));
  const auto declared = declared_bugs();
  std::map<std::string, std::string> elsewhere;  // first divergence by bug
  std::map<std::string, std::string> unlike;  // signature by bug, where it is not the declared one
  for (const auto& bug : kPlantedBugs) {
    SCOPED_TRACE(bug.name + " under " + bug.layout.name);
    const ProcessResult result = run(checks, bug.layout, bug.name);
    ASSERT_EQ(result.exit_code, 1) << result.out << result.err;
    EXPECT_THAT(result.out, ::testing::StartsWith("DIVERGED  "));
    const json report = checks.report();
    const std::string id = first_divergence(report);
    if (!matches(id, declared.at(bug.name), "expected")) {
      elsewhere.emplace(bug.name, id);
    }
    const json& signature = report.at("first_divergence").at("signature");
    const std::string named = signature.is_null() ? "none" : signature.get<std::string>();
    if (!matches(named, declared.at(bug.name), "hint")) {
      unlike.emplace(bug.name, named);
    }
  }
  EXPECT_THAT(
      elsewhere,
      ElementsAre(Pair("softmax-scale",
                       "s0/m0/grad_input/decoder.layers.1.self_attention.core_attention/1")));
  EXPECT_THAT(unlike, ElementsAre(Pair("softmax-scale", "wrong_factor")));
}

// Tracing does not change a bit.
TEST(EndToEnd, TracedRunsGiveTheSameBitsAsUntracedOnes) {
  const TrainingRun two_steps = training("bf16", "tiny", 2);
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> reference = {{"TTRACE_PASS", "reference"},
                                                        {"TTRACE_DIR", directory / "reference"},
                                                        {"TTRACE_STEPS", "0:2"}};
  EXPECT_EQ(digests_of(reference_of(two_steps), {}),
            digests_of(reference_of(two_steps), reference));
  for (const auto& layout : {kTp2SpDp2, kTp2SpCp2, kTp2SpPp2, kTp2SpDp2Overlap}) {
    const std::map<std::string, std::string> candidate = {
        {"TTRACE_PASS", "candidate"},
        {"TTRACE_DIR", directory / layout.name},
        {"TTRACE_REFERENCE", directory / "reference"},
        {"TTRACE_STEPS", "0:2"}};
    EXPECT_EQ(digests_of(candidate_of(two_steps, layout.flags), {}),
              digests_of(candidate_of(two_steps, layout.flags), candidate))
        << layout.name;
  }
}

// The report is the same byte by byte, whatever the number of threads.
TEST(EndToEnd, DiffOfStoredTracesRepeatsTheVerdictOfCheckForAnyNumberOfThreads) {
  Checks checks(training("bf16"));
  for (const std::string bug : {"", "tp-backward-allreduce"}) {
    const ProcessResult check = run(checks, kTp2SpDp2, bug);
    const std::vector<std::string> diff = {
        "diff", checks.folder(), "--format", "json", "--threads"};
    auto one = diff;
    one.emplace_back("1");
    auto two = diff;
    two.emplace_back("2");
    const ProcessResult with_one = ttrace_program(one);
    const ProcessResult with_two = ttrace_program(two);
    EXPECT_EQ(with_one.exit_code, check.exit_code) << with_one.err;
    EXPECT_EQ(with_one.out, read_text(checks.folder() + "/report.json"));
    EXPECT_EQ(with_one.out, with_two.out);
    EXPECT_EQ(ttrace_program({"diff", checks.folder()}).out, check.out);
  }
}

}  // namespace
}  // namespace ttrace::testing
