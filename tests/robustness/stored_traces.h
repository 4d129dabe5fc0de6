// Two stored traces, made by a real program, for a test to damage; `ttrace diff` on them; and what
// every refusal has to look like.
#pragma once

#include "cli/cli_fixture.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace ttrace::testing {

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Exit code 2, nothing on stdout, and one sentence on stderr that has all the words.
inline void expect_refused(const ProcessResult& result, const std::vector<std::string>& words) {
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_FALSE(result.timed_out) << "hangs";
  EXPECT_EQ(result.signal, 0) << "crashes: " << result.err;
  EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::IsEmpty());
  EXPECT_THAT(result.err, ::testing::StartsWith("ttrace: error: "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const std::string& word : words) {
    EXPECT_THAT(result.err, HasSubstr(word));
  }
  // The library's own words are wanted: neither the standard library's nor a place in our sources.
  for (const char* foreign : {"std::", "basic_", "filesystem error", ".cpp:"}) {
    EXPECT_THAT(result.err, Not(HasSubstr(foreign)));
  }
}

// reference/ with two noise passes, candidate/ of two ranks; two steps each.
class StoredTraces : public CliTest {
 protected:
  void SetUp() override {
    write({{"TTRACE_PASS", "reference"}, {"TTRACE_DIR", reference()}}, "");
    for (const char* seed : {"1", "2"}) {
      write({{"TTRACE_PASS", "noise"},
             {"TTRACE_REFERENCE", reference()},
             {"TTRACE_NOISE_SEED", seed}},
            "");
    }
    write_candidate("");
  }

  void write_candidate(const std::string& switches) const {
    write({{"TTRACE_PASS", "candidate"}, {"TTRACE_DIR", candidate()}}, "--ranks 2 " + switches);
  }

  [[nodiscard]] std::string reference() const { return folder_ / "reference"; }
  [[nodiscard]] std::string candidate() const { return folder_ / "candidate"; }
  [[nodiscard]] std::string rank_file() const { return candidate() + "/step000001/rank00001.h5"; }
  [[nodiscard]] std::string noise_table() const { return reference() + "/noise/00002.h5"; }
  [[nodiscard]] std::string manifest() const { return candidate() + "/manifest.json"; }

  [[nodiscard]] ProcessResult diff() const { return ttrace({"diff", reference(), candidate()}); }

 private:
  void write(std::map<std::string, std::string> variables, const std::string& switches) const {
    variables["TTRACE_STEPS"] = "0:2";
    const ProcessResult result =
        run_process({.arguments = {"/bin/sh", "-c", trainer("--hidden 16 " + switches)},
                     .environment = std::move(variables),
                     .directory = folder_.path()});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
};

}  // namespace ttrace::testing
