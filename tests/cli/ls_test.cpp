#include "trace_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ls = TraceCliTest;

TEST_F(Ls, ListsLogicalTensorsInExecutionOrder) {
  write();
  const ProcessResult result = ttrace({"ls", "candidate"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "id                           type  shape  ranks  bytes\n"
            "s0/m0/data/tokens/0          i64   3      0, 1      48\n"
            "s0/m0/output/mlp.fc1/0       bf16  8      0, 1      16\n"
            "s0/main_grad/mlp.fc1.bias/0  f32   2      0, 1      16\n"
            "3 tensors, 80 bytes\n");
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Ls, JsonHoldsTheSameForPrograms) {
  write();
  const ProcessResult result = ttrace({"ls", "candidate", "--format", "json"});
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.at("tensors").size(), 3U);
  EXPECT_EQ(json["tensors"][1],
            nlohmann::json::parse(R"({"id":"s0/m0/output/mlp.fc1/0","kind":"output","order":1,
                                      "type":"bf16","shape":[8],"ranks":[0,1],"bytes":16})"));
  EXPECT_EQ(json["left_out"], 0);
}

TEST_F(Ls, SelectionLeavesOutAndCounts) {
  write();
  const ProcessResult result =
      ttrace({"ls", "candidate", "--kinds", "output,main_grad", "--exclude", "bias"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("1 tensor, 16 bytes; the selection leaves out 2"));
  EXPECT_THAT(result.out, HasSubstr("s0/m0/output/mlp.fc1/0"));
}

TEST_F(Ls, PatternThatMatchesNothingIsWarnedOf) {
  write();
  const ProcessResult result = ttrace({"ls", "candidate", "--filter", "fc1", "--filter", "fc9"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--filter 'fc9' matches no tensor id"));
}

TEST_F(Ls, FolderOfACheckAsksWhichTrace) {
  write();
  const ProcessResult result = ttrace({"ls", folder_.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "ttrace: error: " + folder_.path() +
                " was made by ttrace check and holds two traces; choose " + folder_.path() +
                "/reference or " + folder_.path() + "/candidate\n");
}

TEST_F(Ls, WhatIsNoTraceCannotBeRead) {
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(ttrace({"ls", "empty"}).exit_code, 2);
  EXPECT_EQ(ttrace({"ls", "nowhere"}).err, "ttrace: error: there is no folder nowhere\n");
  EXPECT_THAT(ttrace({"ls"}).err, HasSubstr("ls needs one trace folder, but 0 words are given"));
}

struct BadSelection {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};

void PrintTo(const BadSelection& value, std::ostream* out) {
  *out << value.name;
}

class BadSelections : public TraceCliTest, public ::testing::WithParamInterface<BadSelection> {};

TEST_P(BadSelections, IsRefusedInOneSentence) {
  write();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"ls", "candidate"},
                                                  {"diff", "reference", "candidate"},
                                                  {"merge", "candidate", "-o", "merged.h5"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
    const ProcessResult result = ttrace(arguments);
    EXPECT_EQ(result.exit_code, 2) << command[0];
    EXPECT_THAT(result.err, HasSubstr(GetParam().message)) << command[0];
    EXPECT_THAT(result.out, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Selection,
    BadSelections,
    ::testing::Values(
        BadSelection{"Regex", {"--filter", "a("}, "--filter is 'a('; it must be a regular expr"},
        BadSelection{"Kind", {"--kinds", "outputs"}, "the nearest is 'output'"},
        BadSelection{"EmptyKind", {"--kinds", "output,"}, "--kinds names ''"},
        BadSelection{"Ranks", {"--ranks", "2-1"}, "--ranks is '2-1'; it must be numbers"},
        BadSelection{"RanksOfLetters", {"--ranks", "all"}, "--ranks is 'all'"},
        BadSelection{"Steps", {"--steps", "2:1"}, "--steps is '2:1'"},
        BadSelection{"Unknown", {"--kind", "output"}, "the nearest is '--kinds'"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace ttrace::testing
