// The README shows real output: what it shows must be what the program prints. The table of
// commands is in docs/commands.md.
#include "cli_fixture.h"

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), by);
    at += by.size();
  }
  return text;
}

// Numbers depend on kernels and so does the width of a column; ids, words and ranks do not.
std::string normal(const std::string& line) {
  static const std::regex kNumber(R"(^(\[?)[-+]?[0-9][-+.0-9e]*(x?)([\],;:)]*)$)");
  const bool keeps_numbers = line.starts_with("  ranks ") || line.starts_with("  reference ") ||
                             line.starts_with("  candidate ");
  std::istringstream words(line);
  std::string result;
  for (std::string word; words >> word;) {
    result += (result.empty() ? "" : " ") +
              (keeps_numbers ? word : std::regex_replace(word, kNumber, "$1N$2$3"));
  }
  return result;
}

[[maybe_unused]] std::vector<std::string> normal_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(normal(line));
  }
  return lines;
}

class Readme : public CliTest {
 protected:
  // The block between ``` that begins with the line `first`.
  static std::string block(const std::string& first) {
    const std::string fence = "```\n";
    const std::size_t begin = kText.find(fence + first);
    const std::size_t end = kText.find("\n" + fence, begin + fence.size());
    if (begin == std::string::npos || end == std::string::npos) {
      return "";
    }
    return kText.substr(begin + fence.size(), end + 1 - begin - fence.size());
  }

  static inline const std::string kText = read_text(std::string(TTRACE_SOURCE) + "/README.md");
  static inline const std::string kCommands =
      read_text(std::string(TTRACE_SOURCE) + "/docs/commands.md");
};

TEST_F(Readme, TableHasEveryCommand) {
  const std::string help = ttrace({"help"}).out;
  std::istringstream lines(help.substr(help.find("Commands:\n") + 10));
  std::size_t commands = 0;
  for (std::string line; std::getline(lines, line) && !line.empty(); ++commands) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    EXPECT_THAT(kCommands, HasSubstr("| `ttrace " + name + " "))
        << "docs/commands.md has no row for this command";
  }
  EXPECT_GE(commands, 6U);
}

TEST_F(Readme, OptionsOfThePageOfCommandsExist) {
  const std::string page = replaced(ttrace({"help", "--man"}).out, "\\-", "-");
  static const std::regex kOption("--[a-z][-a-z]*");
  static const std::set<std::string> kOfOthers = {
      "--dependency", "--export", "--parsable"};  // SLURM's
  std::size_t options = 0;
  for (std::sregex_iterator match(kCommands.begin(), kCommands.end(), kOption), end; match != end;
       ++match) {
    if (match->str() != "--help" && !kOfOthers.contains(match->str())) {
      EXPECT_THAT(page, HasSubstr("\\fB" + match->str() + "\\fR"));
    }
    ++options;
  }
  EXPECT_GT(options, 5U);
}

#ifdef TTRACE_TORCH
TEST_F(Readme, SampleOutputIsWhatTheProgramPrints) {
  const std::string sample = block("$ ttrace check ");
  ASSERT_FALSE(sample.empty()) << "README.md has no block that begins with `$ ttrace check`";
  const std::string command_line = sample.substr(2, sample.find('\n') - 2);
  // The script's first half: a clean run, whose reference the sample uses.
  const std::string bug = "planted_bug.py row-output-not-summed";
  ASSERT_THAT(command_line, HasSubstr(bug));
  std::string clean = replaced(command_line, bug, "train.py");
  clean = replaced(clean, "ttrace-demo/bug", "ttrace-demo/clean");
  clean = replaced(clean,
                   "/tmp/ttrace-demo/clean/reference",
                   "\"python examples/dtensor/train.py --precision bf16\"");
  const std::string programs = std::filesystem::path(TTRACE_PROGRAM).parent_path().string();
  const std::string source = TTRACE_SOURCE;
  const auto run = [&](const std::string& text) {
    return run_process(
        {.arguments = {"/bin/sh", "-c", replaced(text, "/tmp/ttrace-demo", folder_.path())},
         .environment = {{"PATH", programs + ":" + PYTHON_FOLDER + ":/usr/bin:/bin"},
                         {"PYTHONPATH", source + "/python"},
                         {"LIBTTRACE_TORCH", TTRACE_TORCH},
                         {"OMP_NUM_THREADS", "1"}},
         .directory = TTRACE_SOURCE});
  };
  const ProcessResult first = run(clean);
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const ProcessResult second = run(command_line);
  EXPECT_EQ(second.exit_code, 1) << second.err;
  const std::string printed = replaced(second.out, folder_.path(), "/tmp/ttrace-demo");
  EXPECT_EQ(normal_lines(sample.substr(sample.find("\n\n") + 2)), normal_lines(printed))
      << "update README.md with\n"
      << printed;
}
#endif

}  // namespace
}  // namespace ttrace::testing
