#include "cli_fixture.h"

#include <filesystem>
#include <fstream>
#include <ostream>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Usage = CliTest;

TEST_F(Usage, HelpListsTheCommands) {
  const ProcessResult result = ttrace({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("check"), HasSubstr("diff"), HasSubstr("Exit code")));
}

TEST_F(Usage, NoCommandPrintsTheHelpButIsNoSuccess) {
  const ProcessResult result = ttrace({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("Commands:"));
}

TEST_F(Usage, VersionIsOneLine) {
  const ProcessResult result = ttrace({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("ttrace [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(Usage, EveryCommandHasHelp) {
  for (const std::string command :
       {"check", "diff", "explain", "calibrate", "ls", "show", "verify", "merge"}) {
    const ProcessResult result = ttrace({command, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out,
                AllOf(StartsWith("Usage: ttrace " + command),
                      HasSubstr("--help"),
                      HasSubstr("Exit codes:\n  0 ")));
    EXPECT_EQ(ttrace({"help", command}).out, result.out);
  }
}

TEST_F(Usage, UnknownCommandNamesTheNearest) {
  const ProcessResult result = ttrace({"dif"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "ttrace: error: unknown command 'dif'; the nearest is 'diff'\n");
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(Usage, UnknownOptionNamesTheNearest) {
  const ProcessResult result = ttrace({"check", "--nose", "3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              StartsWith("ttrace: error: unknown option '--nose'; the nearest is '--noise'"));
}

TEST_F(Usage, AbbreviatedOptionIsUnknown) {
  const ProcessResult result = ttrace({"diff", "--thread", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the nearest is '--threads'"));
}

TEST_F(Usage, ForgottenQuotesAreExplained) {
  const ProcessResult result =
      ttrace({"check", "--reference", "program", "config", "--candidate", "program"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("put a command with spaces in quotes"));
}

struct BadValue {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};

void PrintTo(const BadValue& value, std::ostream* out) {
  *out << value.name;
}

class BadValues : public CliTest, public ::testing::WithParamInterface<BadValue> {};

TEST_P(BadValues, IsRefusedBeforeAnythingRuns) {
  const ProcessResult result = ttrace(check(trainer(), trainer(), GetParam().arguments));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(StartsWith("ttrace: error: "), HasSubstr(GetParam().message)));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(file("run/logs/reference.log"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Check,
    BadValues,
    ::testing::Values(
        BadValue{"EmptyStepRange", {"--steps", "3:3"}, "--steps is '3:3'"},
        BadValue{"StepsOfLetters", {"--steps", "a:b"}, "--steps is 'a:b'"},
        BadValue{"StepsWithTail", {"--steps", "0:1x"}, "--steps is '0:1x'"},
        BadValue{"NegativeStep", {"--steps=-1:1"}, "--steps is '-1:1'"},
        BadValue{
            "Precision", {"--precision", "fp8_f32"}, "it must be one of f64, f32, bf16, f16, fp8"},
        BadValue{"Start", {"--start", "random"}, "it must be one of reference, own"},
        BadValue{"Format", {"--format", "xml"}, "it must be one of text, html, json, jsonl"},
        BadValue{"NegativeThreads", {"--threads=-1"}, "--threads is -1"},
        BadValue{"TimeoutOfLetters", {"--timeout", "soon"}, "--timeout"},
        BadValue{"NegativeTimeout", {"--timeout=-1"}, "--timeout is -1"},
        BadValue{"OutputTwice", {"-o", "other"}, "output"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_F(Usage, MissingCandidateIsNamed) {
  const ProcessResult result = ttrace({"check", "--reference", trainer()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--candidate is missing; pass --candidate COMMAND"));
}

TEST_F(Usage, FolderAsCandidateLeadsToDiff) {
  const ProcessResult result = ttrace(check(trainer(), folder_.path()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("`ttrace diff` compares stored traces"));
}

TEST_F(Usage, FolderThatIsNoTraceAsReferenceIsRefused) {
  const ProcessResult result = ttrace(check(folder_.path(), trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no manifest.json"));
}

// Symptom: a mistyped folder was run as a command, and the log said "not found".
TEST_F(Usage, MistypedFolderIsNamedWithTheNearest) {
  std::filesystem::create_directories(folder_ / "runs/1/reference");
  std::filesystem::create_directories(folder_ / "runs/1/logs");
  const ProcessResult last = ttrace(check("runs/1/refrence", trainer()));
  EXPECT_EQ(last.exit_code, 2);
  EXPECT_EQ(
      last.err,
      "ttrace: error: --reference runs/1/refrence is neither a folder nor a program; the nearest "
      "folder is runs/1/reference\n");
  EXPECT_THAT(ttrace(check("rins/1/reference", trainer())).err,
              HasSubstr("the nearest folder is runs/1/reference\n"));
  EXPECT_THAT(ttrace(check("nothing/like/it", trainer())).err,
              HasSubstr("is neither a folder nor a program; check its path\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Usage, UsedOutputFolderIsRefusedWithTheRemedy) {
  std::filesystem::create_directory(folder_ / "run");
  std::ofstream(folder_ / "run/file") << "mine";
  const ProcessResult result = ttrace(check(trainer(), trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "ttrace: error: run is not empty; choose another folder for -o, or remove it\n");
  EXPECT_EQ(file("run/file"), "mine");
}

TEST_F(Usage, FullStandardOutputIsAnError) {
  const ProcessResult result = run_process(
      {.arguments = {"/bin/sh", "-c", std::string(TTRACE_PROGRAM) + " --version > /dev/full"},
       .environment = {},
       .directory = folder_.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output"));
}

}  // namespace
}  // namespace ttrace::testing
