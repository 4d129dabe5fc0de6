// Programs whose modules have different names: `check --rename`, `diff --rename`, `rename`.
#include "trace_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kNames = R"(tensors:
  - {reference: "layers.*.fc1", candidate: "decoder.layers.*.mlp.linear_fc1"}
  - {reference: "layers.*.fc2", candidate: "decoder.layers.*.mlp.linear_fc2"}
  - {reference: "layers.*.router", candidate: "decoder.layers.*.mlp.router"}
)";

class RenameCli : public TraceCliTest {
 protected:
  void SetUp() override {
    TraceCliTest::SetUp();
    std::ofstream(folder_ / "names.yaml") << kNames;
  }

  [[nodiscard]] bool exists(const std::string& name) const {
    return std::filesystem::exists(folder_ / name);
  }

  // The small stored reference with another name for its module.
  void write_plain() {
    TraceBuilder plain(folder_ / "plain", "reference");
    plain.add(0, {"s0/m0/data/tokens/0", {3, 1, 2}, ElementType::kI64});
    plain.add(0, {"s0/m0/output/ffn.up/0", {1, 2, 3, 4, 5, 6, 7, 8}, ElementType::kBF16, {8}});
    plain.add(0, {"s0/main_grad/ffn.up.bias/0", {1.0, 0.0}, ElementType::kF32});
    static_cast<void>(plain.write());
    std::ofstream(folder_ / "plain.yaml") << "tensors: [{reference: ffn.up, candidate: mlp.fc1}]\n";
  }
};

TEST_F(RenameCli, CheckComparesProgramsOfOtherNames) {
  const ProcessResult result = ttrace(check(trainer("--plain --route 0,1,2,3"),
                                            trainer("--ranks 2 --route 0,1,2,3"),
                                            {"--rename", "names.yaml"}));
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.err, IsEmpty());
  const auto json = nlohmann::json::parse(file("run/report.json"));
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_EQ(json["counts"]["missing_in_candidate"], 0);
  EXPECT_EQ(json["counts"]["missing_in_reference"], 0);
  EXPECT_TRUE(json["unmatched"].empty());
  for (const char* name : {"reference-names/reference/noise/00001.h5",
                           "reference-names/candidate/manifest.json",
                           "reference-names/forced-wide/manifest.json",
                           "reference/noise/00001.h5",
                           "reference/start/rank00000.h5",
                           "reference/rename.yaml",
                           "forced-native/manifest.json"}) {
    EXPECT_TRUE(exists("run/" + std::string(name))) << name;
  }
  // The folder can be judged again, and so can the same pair in the reference's names.
  EXPECT_EQ(ttrace({"diff", "run"}).exit_code, 0);
  EXPECT_EQ(ttrace({"diff", "run/reference-names"}).exit_code, 0);
}

TEST_F(RenameCli, CheckFindsWhatDiffersUnderTheCandidatesName) {
  const ProcessResult result =
      ttrace(check(trainer("--plain"), trainer("--ranks 2 --differ"), {"--rename", "names.yaml"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(
      result.out,
      HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0"));
  EXPECT_THAT(result.err, HasSubstr("names.yaml:4: no tensor of the reference matches this entry"));
}

TEST_F(RenameCli, ReferenceGoesOnWithChoicesOfExpertsUnderItsOwnNames) {
  const ProcessResult result = ttrace(check(trainer("--plain --route 0,1,2,3"),
                                            trainer("--ranks 2 --route 0,1,2,5"),
                                            {"--rename", "names.yaml"}));
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, HasSubstr("the reference used the candidate's choices"));
  EXPECT_TRUE(exists("run/reference-names/rerouted/manifest.json"));
  EXPECT_EQ(ttrace({"diff", "run"}).exit_code, 0) << "the renamed choices are the same ones";
}

TEST_F(RenameCli, StoredReferenceIsRenamedAndMayBeRunAgain) {
  ASSERT_EQ(ttrace(check(trainer("--plain"), trainer(), {"--rename", "names.yaml"})).exit_code, 0);
  const ProcessResult again = ttrace({"check",
                                      "--reference",
                                      "run/reference-names/reference",
                                      "--rerun",
                                      trainer("--plain"),
                                      "--candidate",
                                      trainer("--ranks 2"),
                                      "--rename",
                                      "names.yaml",
                                      "-o",
                                      "again"});
  EXPECT_EQ(again.exit_code, 0) << again.err << again.out;
  EXPECT_TRUE(exists("again/forced-wide/manifest.json"));
  // With the candidate's names the trace can be used as it is, but its own program cannot read it.
  const ProcessResult renamed =
      ttrace({"check", "--reference", "run/reference", "--candidate", trainer(), "-o", "renamed"});
  EXPECT_EQ(renamed.exit_code, 0) << renamed.err << renamed.out;
  const ProcessResult rerun = ttrace({"check",
                                      "--reference",
                                      "run/reference",
                                      "--rerun",
                                      trainer("--plain"),
                                      "--candidate",
                                      trainer(),
                                      "-o",
                                      "rerun"});
  EXPECT_EQ(rerun.exit_code, 2);
  EXPECT_THAT(rerun.err, HasSubstr("has the candidate's names"));
}

TEST_F(RenameCli, CheckTellsWithoutARenameMapWhatIsNear) {
  const ProcessResult result =
      ttrace(check(trainer("--plain"), trainer(), {"--start", "own", "--no-forced"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no tensor is in both traces"),
                    HasSubstr("layers.*.fc1.weight 32x8 and "
                              "decoder.layers.*.mlp.linear_fc1.weight 32x8"),
                    HasSubstr("--rename FILE")));
}

TEST_F(RenameCli, DiffAndExplainRenameTheReference) {
  write();
  write_plain();
  const ProcessResult result = ttrace({"diff", "plain", "candidate", "--rename", "plain.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr(" (plain)\n"), HasSubstr("CLEAN: 3 of 3 tensors")));
  const ProcessResult one =
      ttrace({"explain", "plain", "candidate", "s0/m0/output/mlp.fc1/0", "--rename", "plain.yaml"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
}

TEST_F(RenameCli, RenameWritesATraceThatDiffTakes) {
  write();
  write_plain();
  const ProcessResult result = ttrace({"rename", "plain", "--map", "plain.yaml", "-o", "renamed"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "3 tensors written to renamed\n");
  EXPECT_EQ(ttrace({"diff", "renamed", "candidate"}).exit_code, 0);
  EXPECT_EQ(ttrace({"rename",
                    "candidate",
                    "--map",
                    "plain.yaml",
                    "--to",
                    "reference",
                    "-o",
                    "candidate-renamed"})
                .exit_code,
            0);
  EXPECT_EQ(ttrace({"diff", "plain", "candidate-renamed"}).exit_code, 0);
}

// A linear and its output, with the same numbers under another name in the other program.
TEST_F(RenameCli, GuessWritesAMapThatDiffTakes) {
  for (const bool is_reference : {true, false}) {
    TraceBuilder side(folder_ / (is_reference ? "one" : "two"),
                      is_reference ? "reference" : "candidate");
    const std::string path = is_reference ? "ffn.up" : "mlp.fc1";
    side.add(0, {"s0/param/" + path + ".weight/0", wavy(6), ElementType::kF32, {2, 3}});
    side.add(0, {"s0/m0/output/" + path + "/0", wavy(8, 2.0), ElementType::kF32, {4, 2}});
    static_cast<void>(side.write());
  }
  const ProcessResult result = ttrace({"rename", "--guess", "one", "two", "-o", "guess.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, HasSubstr("4 tensors of both programs: 4 certain, 0 likely, 0 open"));
  EXPECT_THAT(file("guess.yaml"), HasSubstr("{reference: \"ffn.up\", candidate: \"mlp.fc1\"}"));
  EXPECT_EQ(ttrace({"diff", "one", "two", "--rename", "guess.yaml"}).exit_code, 0);
  const ProcessResult json = ttrace({"rename", "--guess", "one", "two", "--format", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out)["entries"][0]["certainty"], "certain");
}

TEST_F(RenameCli, GuessAsksForWhatNothingDecides) {
  for (const bool is_reference : {true, false}) {
    TraceBuilder side(folder_ / (is_reference ? "one" : "two"),
                      is_reference ? "reference" : "candidate");
    side.add(0, {"s0/param/a.weight/0", wavy(6, is_reference ? 1 : 5), ElementType::kF32, {2, 3}});
    side.add(0, {"s0/param/b.weight/0", wavy(6, is_reference ? 2 : 6), ElementType::kF32, {2, 3}});
    static_cast<void>(side.write());
  }
  const ProcessResult result = ttrace({"rename", "--guess", "one", "two", "-o", "guess.yaml"});
  EXPECT_EQ(result.exit_code, 1) << result.err << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("4 open"), HasSubstr("may be: a.weight or b.weight")));
  EXPECT_THAT(file("guess.yaml"), HasSubstr("OPEN"));
}

TEST_F(RenameCli, BadUsageIsRefusedWithARemedy) {
  write();
  write_plain();
  std::ofstream(folder_ / "bad.yaml") << "tensors:\n- {from: a, to: b}\n";
  struct Case {
    std::vector<std::string> arguments;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{"rename", "--guess", "plain"},
       "takes the trace of the reference and that of the candidate, but 1 word is given"},
      {{"rename", "--guess", "plain", "none"}, "there is no folder none"},
      {{"rename", "--guess", "plain", "candidate", "--map", "plain.yaml"}, "leave one of them out"},
      {{"rename", "--guess", "plain", "candidate", "--format", "xml"}, "xml"},
      {{"rename", "plain", "-o", "x"}, "pass --map FILE"},
      {{"rename", "plain", "--map", "plain.yaml"}, "pass -o FOLDER"},
      {{"rename", "plain", "--map", "plain.yaml", "-o", "candidate"}, "candidate is not empty"},
      {{"rename", "plain", "--map", "plain.yaml", "-o", "x", "--to", "both"}, "--to is 'both'"},
      {{"rename", "plain", "--map", "none.yaml", "-o", "x"},
       "cannot read the rename map none.yaml"},
      {{"rename", "plain", "--map", "bad.yaml", "-o", "x"}, "bad.yaml:2: unknown key \"from\""},
      {{"diff", "plain", "candidate", "--rename", "plain.yaml", "--partial"},
       "leave --partial or --rename out"},
      {check(trainer(), trainer(), {"--rename", "plain.yaml", "--dyadic"}),
       "leave --dyadic or --rename out"},
  };
  for (const Case& each : cases) {
    const ProcessResult result = ttrace(each.arguments);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(each.expected));
    EXPECT_THAT(result.err, Not(HasSubstr("exception")));
  }
}

}  // namespace
}  // namespace ttrace::testing
