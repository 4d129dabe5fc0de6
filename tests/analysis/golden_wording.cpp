#include "analysis/golden_wording.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace ttrace::testing {
namespace {

constexpr const char* kFile = TTRACE_SOURCE "/tests/analysis/wording.txt";
constexpr const char* kHead =
    "# What the tests of analysis/ expect the program to say. Read it aloud after a change:\n"
    "#     TTRACE_WRITE_WORDING=1 build/cpu/bin/analysis_test; git diff "
    "tests/analysis/wording.txt\n";

using Wording = std::map<std::string, std::string>;  // "Suite.Test" or "Suite.Test 2" -> text

// An entry is its name, and the lines of its text, two spaces farther right.
Wording read() {
  std::ifstream file(kFile);
  if (!file) {
    throw std::runtime_error(std::string(kFile) + ": the file cannot be opened");
  }
  Wording wording;
  std::string* text = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("  ") || line.empty()) {
      if (text != nullptr) {
        *text += (line.empty() ? "" : line.substr(2)) + "\n";
      }
    } else if (!line.starts_with('#')) {
      text = &wording[line];
    }
  }
  return wording;
}

std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    result += line.empty() ? "\n" : "  " + line + "\n";
  }
  return result;
}

void write(const Wording& wording) {
  std::ofstream file(kFile);
  file << kHead;
  for (const auto& [name, text] : wording) {
    file << name << '\n' << indented(text);
  }
}

// A call of the test that runs: the second one of a test is "Suite.Test 2".
std::string name_of_call() {
  static std::map<std::string, int> calls;
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = fmt::format("{}.{}", test.test_suite_name(), test.name());
  const int call = ++calls[name];
  return call == 1 ? name : fmt::format("{} {}", name, call);
}

// Without what round-off decides: another compiler may leave 1e-17 where this one leaves 0.
std::string comparable(const std::string& text) {
  static const std::regex kRounded(R"([0-9]+(\.[0-9]+)?e[-+][0-9]+)");
  static const std::regex kNothing(R"((\+- |to |leaves |difference )0(?![0-9.]))");
  return std::regex_replace(std::regex_replace(text, kRounded, "#"), kNothing, "$1#");
}

}  // namespace

::testing::AssertionResult is_worded(const std::string& text) {
  const std::string name = name_of_call();
  if (text.empty()) {
    return ::testing::AssertionFailure() << name << " says nothing";
  }
  const std::string said = text.ends_with('\n') ? text : text + "\n";
  Wording wording = read();
  const std::string& expected = wording[name];
  if (comparable(expected) == comparable(said)) {
    return ::testing::AssertionSuccess();
  }
  if (std::getenv("TTRACE_WRITE_WORDING") != nullptr) {
    wording[name] = said;
    write(wording);
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << fmt::format(
             "{}, in tests/analysis/wording.txt:\n{}is now:\n{}its head tells how it is written",
             name,
             indented(expected),
             indented(said));
}

}  // namespace ttrace::testing
