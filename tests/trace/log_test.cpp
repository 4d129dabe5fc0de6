// The logger is made once per process, so every situation gets a process of its own.
#include <ttrace/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace ttrace {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void log_all_levels(const char* wanted) {
  if (wanted == nullptr) {
    ::unsetenv("TTRACE_LOG");
  } else {
    ::setenv("TTRACE_LOG", wanted, 1);
  }
  log(LogLevel::kDebug, "one");
  log(LogLevel::kInfo, "two");
  log(LogLevel::kWarning, "three {}");
  log(LogLevel::kError, "four");
  std::exit(0);
}

TEST_F(Log, DefaultIsWarning) {
  EXPECT_EXIT(log_all_levels(nullptr),
              ::testing::ExitedWithCode(0),
              ::testing::Eq("[ttrace] [warning] three {}\n[ttrace] [error] four\n"));
}

TEST_F(Log, EnvironmentSetsTheLevel) {
  EXPECT_EXIT(log_all_levels("info"),
              ::testing::ExitedWithCode(0),
              ::testing::Eq("[ttrace] [info] two\n[ttrace] [warning] three {}\n"
                            "[ttrace] [error] four\n"));
}

TEST_F(Log, BadEnvironmentIsOneWarning) {
  EXPECT_EXIT(
      log_all_levels("loud"),
      ::testing::ExitedWithCode(0),
      ::testing::Eq(
          "[ttrace] [warning] TTRACE_LOG is 'loud'; set it to debug, info, warning or error; until "
          "then it means warning\n[ttrace] [warning] three {}\n[ttrace] [error] four\n"));
}

TEST_F(Log, ProgramOverridesTheEnvironment) {
  EXPECT_EXIT(
      {
        ::setenv("TTRACE_LOG", "debug", 1);
        set_log_level(LogLevel::kError);
        log_all_levels("debug");
      },
      ::testing::ExitedWithCode(0),
      ::testing::Eq("[ttrace] [error] four\n"));
}

}  // namespace
}  // namespace ttrace
