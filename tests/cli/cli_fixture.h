// A folder per test, the built `ttrace` run in it on the fake trainer, and a check that no process
// of the test survives.
#pragma once

#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace ttrace::testing {

class CliTest : public ::testing::Test {
 protected:
  // Every process of a test carries the name of its folder in its arguments.
  void TearDown() override { EXPECT_THAT(processes_with(folder_.path()), ::testing::IsEmpty()); }

  // A shell command that runs the fake trainer.
  [[nodiscard]] std::string trainer(const std::string& switches = "") const {
    return std::string(FAKE_TRAINER) + " " + switches + " --tag " + folder_.path();
  }

  [[nodiscard]] ProcessOptions options(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), TTRACE_PROGRAM);
    return {.arguments = std::move(arguments), .environment = {}, .directory = folder_.path()};
  }

  [[nodiscard]] ProcessResult ttrace(std::vector<std::string> arguments) const {
    return run_process(options(std::move(arguments)));
  }

  // Arguments of a check into the folder `run`, short so that a test stays fast.
  [[nodiscard]] static std::vector<std::string> check(const std::string& reference,
                                                      const std::string& candidate,
                                                      const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{
        "check", "--reference", reference, "--candidate", candidate, "--noise", "1", "-o", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Waits for a file that a started program writes.
  [[nodiscard]] bool appears(const std::string& name) const {
    const auto limit = std::chrono::steady_clock::now() + kHang;
    while (!std::filesystem::exists(folder_ / name)) {
      if (std::chrono::steady_clock::now() > limit) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // Content of a file below the test's folder.
  [[nodiscard]] std::string file(const std::string& name) const {
    return read_text(folder_ / name);
  }

  const TemporaryDirectory folder_;
};

}  // namespace ttrace::testing
