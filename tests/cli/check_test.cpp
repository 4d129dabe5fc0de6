#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using Check = CliTest;

TEST_F(Check, EqualRunsAreClean) {
  const ProcessResult result = ttrace({"check",
                                       "--reference",
                                       trainer(),
                                       "--candidate",
                                       trainer("--ranks 2"),
                                       "--noise",
                                       "3",
                                       "--details",
                                       "-o",
                                       "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, file("run/report.txt"));
  EXPECT_EQ(nlohmann::json::parse(file("run/report.json")).at("verdict"), "clean");
  for (const char* name : {"reference/manifest.json",
                           "reference/start/rank00000.h5",
                           "reference/noise/00003.h5",
                           "candidate/step000000/rank00001.h5",
                           "logs/reference.log",
                           "logs/noise-3.log",
                           "logs/candidate.log"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("run/" + std::string(name)))) << name;
  }
}

TEST_F(Check, WrongTensorIsADivergence) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--ranks 2 --differ")));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(
      result.out,
      HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0\n"));
  EXPECT_EQ(nlohmann::json::parse(file("run/report.json")).at("verdict"), "diverged");
}

TEST_F(Check, SelectionAndToleranceOfTheComparisonAreThoseOfDiff) {
  const ProcessResult result = ttrace(check(
      trainer(), trainer("--differ"), {"--kinds", "output", "--rtol", "0.2", "--format", "json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["counts"]["tensors"], 2);
  EXPECT_EQ(json["counts"]["left_out"], 2);
  EXPECT_EQ(json["counts"]["bounds_asked"], 2);
  // The trace itself is whole: the selection is of the comparison only.
  EXPECT_EQ(ttrace({"diff", "run"}).exit_code, 1);
}

TEST_F(Check, NothingButTheReportIsPrintedIntoAPipe) {
  const ProcessResult result = ttrace(check(trainer(), trainer()));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(Check, TerminalShowsPassesAndASummary) {
  ProcessOptions asked = options(check(trainer(), trainer("--ranks 2"), {"--jobs", "1"}));
  asked.terminal = true;
  const ProcessResult result = run_process(asked);
  EXPECT_EQ(result.exit_code, 0);
  // Symptom: the first line of a check of six passes said [1/3].
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[1/6] dry candidate ... "),
                    HasSubstr("[2/6] reference ... "),
                    HasSubstr("[3/6] candidate ... "),
                    HasSubstr("[4/6] noise 1 of 1 ... "),
                    HasSubstr("[5/6] forced-wide ... "),
                    HasSubstr("[6/6] forced-native ... "),
                    HasSubstr(" MB in run")));
}

// Symptom: an error in a candidate's first second showed only after the reference and its noise
// passes had run.
TEST_F(Check, TriesAStepOfTheCandidateBeforeAnythingElse) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--ranks 2"), {"--steps", "3:5", "--start", "own"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(file("run/logs/dry.log"),
              AllOf(HasSubstr("TTRACE_PASS=candidate\n"),
                    HasSubstr("TTRACE_COUNT=1\n"),
                    HasSubstr("TTRACE_STEPS=3:4\n")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/dry"));
  // Where the reference's own program is the candidate, or the reference is stored, nothing is
  // gained.
  ASSERT_EQ(ttrace({"check", "--reference", "run/reference", "--candidate", trainer(), "-o", "b"})
                .exit_code,
            0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b/logs/dry.log"));
}

TEST_F(Check, NoisePassesThatACheckDidNotMakeAreMadeWhenItsReferenceIsUsedAgain) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--only candidate --exit-before 3"))).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/reference/noise"));
  const auto again = [this](const std::string& folder, const std::string& reference) {
    return ttrace({"check", "--reference", reference, "--candidate", trainer(), "-o", folder});
  };
  const ProcessResult second = again("second", "run/reference");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("no noise passes")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/noise/00001.h5"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/reference/noise/00002.h5"));
  ASSERT_EQ(again("third", "run/reference").exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "third/logs/noise-1.log"));
}

// What `diff` of a run prints on a terminal with these variables.
class OnATerminal : public CliTest {
 protected:
  [[nodiscard]] std::string diff(std::map<std::string, std::string> environment,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"diff", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProcessOptions asked = options(arguments);
    asked.terminal = true;
    asked.environment = std::move(environment);
    return run_process(asked).out;
  }
  static bool has_color(const std::string& text) {
    return std::regex_search(text, std::regex("\x1b\\[[0-9;]*m"));
  }
};

TEST_F(OnATerminal, TheVerdictIsRedOrGreenAndTheCauseIsBold) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2 --differ"))).exit_code, 1);
  const std::string diverged = diff({{"TERM", "xterm"}});
  EXPECT_THAT(diverged,
              AllOf(HasSubstr("\x1b[1;31mDIVERGED\x1b[0m  decoder.layers.0.mlp.linear_fc2: output"),
                    HasSubstr("  cause      \x1b[1mwrong factor: ")));
  // Without the codes, and where lines end, it is the report of a pipe.
  const std::string plain = ttrace({"diff", "run"}).out;
  EXPECT_FALSE(has_color(plain)) << "a pipe has no colours";
  const auto words = [](const std::string& text) {
    const std::string uncolored = std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
    return std::regex_replace(uncolored, std::regex("[\r\n ]+"), " ");
  };
  EXPECT_THAT(words(diverged), HasSubstr(words(plain)));
  std::filesystem::remove_all(folder_ / "run");
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  EXPECT_THAT(diff({{"TERM", "xterm"}}), HasSubstr("\x1b[1;32mCLEAN: 4 of 4 tensors judged"));
}

TEST_F(OnATerminal, ThereAreNoColorsWhereTheUserOrTheTerminalWantsNone) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  EXPECT_TRUE(has_color(diff({{"TERM", "xterm"}, {"NO_COLOR", ""}})));
  EXPECT_FALSE(has_color(diff({{"TERM", "xterm"}, {"NO_COLOR", "1"}})));
  EXPECT_FALSE(has_color(diff({{"TERM", "xterm"}}, {"--no-color"})));
  EXPECT_FALSE(has_color(diff({{"TERM", "dumb"}})));
  EXPECT_FALSE(has_color(diff({{"TERM", "xterm"}}, {"--format", "json"})));
  // Files never have them, wherever the report is printed.
  static_cast<void>(diff({{"TERM", "xterm"}}, {"--format=text", "--format=text=report"}));
  EXPECT_FALSE(has_color(file("report")));
}

TEST_F(Check, JsonEqualsThatOfDiffOnTheStoredTraces) {
  const ProcessResult checked =
      ttrace(check(trainer(), trainer("--ranks 2 --differ"), {"--format", "json"}));
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_EQ(checked.out, file("run/report.json"));
  const ProcessResult whole = ttrace({"diff", "run", "--format", "json"});
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_EQ(whole.out, checked.out);
}

TEST_F(Check, JsonWithoutForcedPassesEqualsThatOfDiffOnThePair) {
  const ProcessResult checked =
      ttrace(check(trainer(), trainer("--ranks 2 --differ"), {"--format", "json", "--no-forced"}));
  EXPECT_EQ(checked.exit_code, 1);
  const ProcessResult pair =
      ttrace({"diff", "run/reference", "run/candidate", "--format", "json", "--threads", "1"});
  EXPECT_EQ(pair.out, checked.out);
}

TEST_F(Check, OperatorThatErrsIsToldByTheForcedPasses) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--ranks 2 --differ")));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0"),
            HasSubstr("on the candidate's own inputs its operators are"),
            HasSubstr("; 3 of 3 operators one by one")));
  EXPECT_THAT(file("run/logs/forced-wide.log"),
              AllOf(HasSubstr("TTRACE_PASS=forced\n"), HasSubstr("TTRACE_PRECISION=f64\n")));
  EXPECT_THAT(file("run/logs/forced-native.log"),
              AllOf(HasSubstr("TTRACE_PASS=forced\n"), HasSubstr("TTRACE_PRECISION=f32\n")));
}

// A program that computes in F16 was compared without its operators, because its forced pass
// refused TTRACE_PRECISION=f16, which that pass itself had set.
TEST_F(Check, OperatorsOfAnF16ProgramAreCheckedOnTheirOwn) {
  const ProcessResult result =
      ttrace(check(trainer("--precision f16"), trainer("--precision f16 --ranks 2 --differ")));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, Not(HasSubstr("operators are not checked one by one")));
  EXPECT_THAT(file("run/report.txt"), HasSubstr("operators checked on their own 3, wrong 1"));
  EXPECT_THAT(file("run/logs/forced-wide.log"), HasSubstr("TTRACE_PRECISION=f32\n"));
  EXPECT_THAT(file("run/logs/forced-native.log"), HasSubstr("TTRACE_PRECISION=f16\n"));
}

TEST_F(Check, ForcedPassThatFailsLeavesTheComparisonOfTheRunsThemselves) {
  const ProcessResult result =
      ttrace(check(trainer("--only forced --exit-before 3"), trainer("--ranks 2 --differ")));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("operators are not checked one by one: "),
                    HasSubstr("out of luck"),
                    HasSubstr("pass --no-forced")));
  // Symptom: only the warning said so, and a reader of the stored report did not learn why nothing
  // is said of operators.
  const auto says_why = HasSubstr(
      "  remark     operators are not checked one by one, because the pass forced-wide has no "
      "complete trace; "
      "run/logs/forced-wide.log says why");
  EXPECT_THAT(
      result.out,
      AllOf(says_why,
            HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0"),
            Not(HasSubstr("operators one by one"))));
  EXPECT_THAT(file("run/report.txt"), says_why);
  EXPECT_THAT(ttrace({"diff", "run"}).out, says_why);
  EXPECT_THAT(file("run/report.json"),
              HasSubstr(R"("broken_off":["forced-wide","forced-native"])"));
}

TEST_F(Check, GoldenPassIsTheReferenceInFp64FromTheReferencesParameters) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--ranks 2"), {"--golden", "--start", "own"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(file("run/report.txt"),
              HasSubstr("; compared with FP64 0;"));  // it equals the reference
  EXPECT_THAT(file("run/logs/golden.log"),
              AllOf(HasSubstr("TTRACE_PASS=golden\n"),
                    HasSubstr("TTRACE_PRECISION=f64\n"),
                    HasSubstr("TTRACE_START=reference\n"),
                    HasSubstr("/run/reference\n")));
  EXPECT_EQ(ttrace({"diff", "run", "--format", "json"}).out, file("run/report.json"));
}

TEST_F(Check, GoldenPassThatFailsLeavesTheRestOfTheVerdict) {
  const ProcessResult result = ttrace(
      check(trainer("--only golden --exit-before 3"), trainer("--ranks 2 --differ"), {"--golden"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("nothing is compared with a golden pass: "),
                    HasSubstr("leave --golden out")));
  EXPECT_THAT(
      file("run/report.txt"),
      AllOf(HasSubstr("operators checked on their own 3"), Not(HasSubstr("compared with FP64 0"))));
}

TEST_F(Check, GoldenPassOfAStoredReferenceNeedsItsCommand) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const auto again = [this](const std::string& folder, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"check",
                 "--reference",
                 "run/reference",
                 "--candidate",
                 trainer(),
                 "--golden",
                 "-o",
                 folder});
    return ttrace(more);
  };
  std::filesystem::remove(folder_ / "run/reference/command.json");
  EXPECT_THAT(again("without", {}).err, HasSubstr("there is no golden pass"));
  EXPECT_EQ(again("with", {"--rerun", trainer()}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "with/golden/manifest.json"));
}

TEST_F(Check, GoldenPassOfAnFp64RunIsLeftOut) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer(), {"--golden", "--precision", "f64"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--golden is ignored"));
}

TEST_F(Check, DyadicInputsDemandEqualityInF32) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--ranks 2 --differ"), {"--dyadic"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0"),
            HasSubstr("add up small integers, which is exact in any order")));
  EXPECT_THAT(file("run/report.txt"), HasSubstr("equal for dyadic inputs 3;"));
  for (const std::string pass : {"reference", "candidate", "golden"}) {
    EXPECT_THAT(file("run/logs/" + pass + ".log"), HasSubstr("TTRACE_INPUTS=dyadic\n"));
  }
  EXPECT_THAT(file("run/logs/candidate.log"), HasSubstr("TTRACE_PRECISION=f32\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/forced-wide"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/reference/noise"));
  EXPECT_EQ(ttrace({"diff", "run", "--format", "json"}).out, file("run/report.json"));
}

TEST_F(Check, DyadicInputsAreForF32AndReferencesThatCanRun) {
  const ProcessResult wide =
      ttrace(check(trainer(), trainer(), {"--dyadic", "--precision", "f64"}));
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_THAT(
      wide.err,
      HasSubstr(
          "--dyadic needs f32, in which sums of small integers are exact, but --precision is f64"));
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const ProcessResult stored = ttrace(
      {"check", "--reference", "run/reference", "--candidate", trainer(), "--dyadic", "-o", "x"});
  EXPECT_EQ(stored.exit_code, 2);
  EXPECT_THAT(stored.err, HasSubstr("pass the reference's command"));
}

TEST_F(Check, DyadicInputsWithoutAGoldenPassGiveNoVerdict) {
  const ProcessResult result =
      ttrace(check(trainer("--only golden --exit-before 3"), trainer(), {"--dyadic"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the golden pass failed"));
}

// Symptom: operators of a second candidate were not checked, unless somebody gave the reference's
// command once more.
TEST_F(Check, StoredReferenceRunsAgainAsItWasMade) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const auto again = [&](const std::string& folder) {
    return ttrace({"check",
                   "--reference",
                   folder_ / "run/reference",
                   "--candidate",
                   trainer("--ranks 2"),
                   "-o",
                   folder});
  };
  const ProcessResult remembered = again("second");
  EXPECT_EQ(remembered.exit_code, 0) << remembered.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "second/forced-wide/manifest.json"));
  const auto made = nlohmann::json::parse(file("run/reference/command.json"));
  EXPECT_EQ(made.at("command"), trainer());
  EXPECT_EQ(made.at("folder"), std::filesystem::canonical(folder_.path()).string());
  EXPECT_TRUE(made.at("environment").contains("PATH"));

  const auto is_not_run_again = [&](const std::string& name) {
    const ProcessResult result = again(name);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("pass --rerun COMMAND, or --no-forced to skip this check"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name + "/forced-wide")));
  };
  auto elsewhere = made;
  elsewhere["folder"] = folder_ / "gone";
  std::ofstream(folder_ / "run/reference/command.json") << elsewhere;
  is_not_run_again("moved");
  std::filesystem::remove(folder_ / "run/reference/command.json");
  is_not_run_again("unknown");
}

TEST_F(Check, StoredReferenceIsReusedWithItsNoise) {
  ASSERT_EQ(ttrace(check(trainer(), trainer(), {"--steps", "2:4"})).exit_code, 0);
  const ProcessResult again = ttrace({"check",
                                      "--reference",
                                      "run/reference",
                                      "--candidate",
                                      trainer("--ranks 2"),
                                      "-o",
                                      "again"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("--rerun")));
  EXPECT_THAT(file("again/logs/candidate.log"), HasSubstr("TTRACE_STEPS=2:4\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "again/logs/reference.log"));
  EXPECT_EQ(ttrace({"diff", "again", "--format", "json"}).out, file("again/report.json"));
}

TEST_F(Check, OtherStepsThanTheStoredReferenceHasAreRefused) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const ProcessResult again =
      ttrace({"check", "--reference", "run/reference", "--candidate", trainer(), "--steps", "1:2"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--steps is 1:2, but the stored reference has 0:1"));
}

TEST_F(Check, StoredReferenceWithoutNoiseIsRemarked) {
  ASSERT_EQ(ttrace({"check",
                    "--reference",
                    trainer(),
                    "--candidate",
                    trainer(),
                    "--noise",
                    "0",
                    "-o",
                    "run"})
                .exit_code,
            0);
  const ProcessResult again =
      ttrace({"check", "--reference", "run/reference", "--candidate", trainer(), "-o", "again"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("run/reference has no noise passes"));
}

TEST_F(Check, NoiseAskedOfAStoredReferenceIsRemarked) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const ProcessResult again = ttrace({"check",
                                      "--reference",
                                      "run/reference",
                                      "--candidate",
                                      trainer(),
                                      "--noise",
                                      "3",
                                      "-o",
                                      "again"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("--noise is ignored"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/reference/noise/00002.h5"));
}

TEST_F(Check, StoredReferenceThatIsNotCompleteIsRefused) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  std::filesystem::remove(folder_ / "run/reference/step000000/rank00000.h5");
  const ProcessResult again =
      ttrace({"check", "--reference", "run/reference", "--candidate", trainer()});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("run/reference is not complete"));
}

TEST_F(Check, RunsAreNumberedFromOne) {
  const std::vector<std::string> arguments{
      "check", "--reference", trainer(), "--candidate", trainer(), "--noise", "0"};
  EXPECT_EQ(ttrace(arguments).exit_code, 0);
  EXPECT_EQ(ttrace(arguments).exit_code, 0);
  EXPECT_THAT(file("runs/1/report.txt"), Not(IsEmpty()));
  EXPECT_THAT(file("runs/2/report.txt"), Not(IsEmpty()));
}

TEST_F(Check, PassesGetTheirOwnVariablesAndTheUsersChoices) {
  ProcessOptions asked =
      options(check(trainer(), trainer(), {"--precision", "f32", "--start", "own"}));
  asked.environment = {{"TTRACE_FILTER", "output"},
                       {"TTRACE_NOISE_SEED", "9"},
                       {"TTRACE_CANDIDATE", "elsewhere"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"PMIX_RANK", "3"},
                       {"OMPI_MCA_mca_base_env_list", "MINE"}};
  ASSERT_EQ(run_process(asked).exit_code, 0);
  const std::string here = std::filesystem::canonical(folder_.path());
  std::vector<std::string> lines;
  std::istringstream log(file("run/logs/candidate.log"));
  for (std::string line; std::getline(log, line);) {
    lines.push_back(line);
  }
  EXPECT_THAT(lines,
              UnorderedElementsAre("TTRACE_PASS=candidate",
                                   ::testing::MatchesRegex("TTRACE_RUN=[0-9a-f]{16}"),
                                   "TTRACE_START=own",
                                   "TTRACE_STEPS=0:1",
                                   "TTRACE_PRECISION=f32",
                                   "TTRACE_DIR=" + here + "/run/candidate",
                                   "TTRACE_REFERENCE=" + here + "/run/reference",
                                   "TTRACE_FILTER=output",
                                   "OMPI_MCA_mca_base_env_list=MINE;TTRACE_FILTER;TTRACE_DIR;"
                                   "TTRACE_PASS;TTRACE_PRECISION;TTRACE_REFERENCE;"
                                   "TTRACE_RUN;TTRACE_START;TTRACE_STEPS"));
  EXPECT_THAT(file("run/logs/noise-1.log"),
              AllOf(HasSubstr("TTRACE_PASS=noise\n"),
                    HasSubstr("TTRACE_NOISE_SEED=1\n"),
                    HasSubstr("TTRACE_REFERENCE=" + here + "/run/reference\n"),
                    Not(HasSubstr("TTRACE_DIR="))));
}

TEST_F(Check, CommandWithMpirunsOwnForwardingIsLeftAlone) {
  // Open MPI refuses -x together with mca_base_env_list; `true -x` stands for such an mpirun.
  ASSERT_EQ(ttrace(check(trainer(), "true -x NAME && " + trainer())).exit_code, 0);
  EXPECT_THAT(file("run/logs/candidate.log"), Not(HasSubstr("OMPI_MCA_mca_base_env_list")));
  EXPECT_THAT(file("run/logs/reference.log"), HasSubstr("OMPI_MCA_mca_base_env_list"));
}

TEST_F(Check, VeryLongCommandIsNotTakenForAFolder) {
  const ProcessResult result =
      ttrace(check(trainer(), "LONG=" + std::string(6000, 'x') + " " + trainer()));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Two runs in F32 differed in every tensor, because one of them multiplied in TF32.
TEST_F(Check, Tf32OnOneSideAloneEndsTheCheckBeforeTheForcedPasses) {
  const std::string with_tf32 = " --machine device=cuda,f32_products=tf32";
  const ProcessResult result =
      ttrace(check(trainer("--machine device=cuda,f32_products=f32"), trainer(with_tf32)));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the reference multiplied in f32 and the candidate in tf32"),
                    HasSubstr("torch.backends.cuda.matmul.allow_tf32 = False")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/forced-wide"));
  std::filesystem::remove_all(folder_ / "run");
  EXPECT_EQ(ttrace(check(trainer(with_tf32), trainer(with_tf32))).exit_code, 0);
}

TEST_F(Check, LsAndShowSayWhatTheMachineDidToNumbers) {
  const std::string program = trainer("--machine device=cuda,f32_products=tf32");
  ASSERT_EQ(ttrace(check(program, program, {"--no-forced", "--no-self-check"})).exit_code, 0);
  const std::string line = "machine: device cuda, f32_products tf32\n";
  EXPECT_THAT(ttrace({"ls", "run/candidate"}).out, HasSubstr(line));
  const auto json = nlohmann::json::parse(ttrace({"ls", "run/candidate", "--format", "json"}).out);
  EXPECT_EQ(json["numerics"]["f32_products"], "tf32");
  EXPECT_THAT(
      ttrace({"show", "run/candidate", "s0/m0/output/decoder.layers.0.mlp.linear_fc1/0"}).out,
      HasSubstr(line));
  EXPECT_THAT(file("run/report.txt"), HasSubstr("multiply in tf32, so bounds are class defaults"));
}

TEST_F(Check, SelfCheckRunsTheReferenceTwiceWithoutNoise) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--ranks 2"), {"--self-check"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("a second run of the reference reproduced all of 3 tensors"));
  EXPECT_THAT(file("run/logs/self-check.log"), HasSubstr("TTRACE_NOISE_SEED=0\n"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/noise/self.h5"));
  EXPECT_EQ(nlohmann::json::parse(file("run/report.json"))["counts"]["noise_passes"], 1);
  EXPECT_EQ(ttrace({"verify", "run/reference"}).exit_code, 0);
  EXPECT_EQ(ttrace({"diff", "run"}).out, result.out);
}

TEST_F(Check, SelfCheckNamesTheFirstTensorThatWasNotReproduced) {
  const ProcessResult result =
      ttrace(check(trainer("--irreproducible"), trainer(), {"--self-check"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("did not reproduce 3 of 3 tensors; the first is "
                        "s0/m0/output/decoder.layers.0.mlp.linear_fc1/0, off by "));
}

TEST_F(Check, SelfCheckIsRunUnaskedOnAcceleratorsWithoutDeterministicAlgorithms) {
  const auto is_run = [this](const std::string& machine, const std::vector<std::string>& more) {
    std::filesystem::remove_all(folder_ / "run");
    const std::string program = trainer("--machine " + machine);
    EXPECT_EQ(ttrace(check(program, program, more)).exit_code, 0);
    return std::filesystem::exists(folder_ / "run/reference/noise/self.h5");
  };
  EXPECT_TRUE(is_run("device=cuda,deterministic_algorithms=off", {}));
  EXPECT_TRUE(is_run("device=cuda,deterministic_algorithms=warn", {}));
  EXPECT_FALSE(is_run("device=cuda,deterministic_algorithms=on", {}));
  EXPECT_FALSE(is_run("device=cpu,deterministic_algorithms=off", {}));
  EXPECT_FALSE(is_run("device=cuda,deterministic_algorithms=off", {"--no-self-check"}));
}

TEST_F(Check, StoredReferenceBringsItsSelfCheck) {
  ASSERT_EQ(ttrace(check(trainer("--irreproducible"), trainer(), {"--self-check"})).exit_code, 0);
  const ProcessResult again =
      ttrace({"check", "--reference", "run/reference", "--candidate", trainer(), "-o", "again"});
  EXPECT_THAT(again.out, HasSubstr("did not reproduce 3 of 3 tensors"));
  std::filesystem::remove_all(folder_ / "run");
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const ProcessResult plain = ttrace({"check",
                                      "--reference",
                                      "run/reference",
                                      "--candidate",
                                      trainer(),
                                      "--self-check",
                                      "-o",
                                      "late"});
  EXPECT_THAT(plain.err, HasSubstr("--self-check is ignored"));
}

TEST_F(Check, DifferentModelsCannotBeCompared) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--hidden 16")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("hidden"));
  EXPECT_THAT(result.out, IsEmpty());
}

}  // namespace
}  // namespace ttrace::testing
