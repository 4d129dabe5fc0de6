#include "hooks/session/departure.h"

#include "trace/file/attendance.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>
#include <unistd.h>

namespace ttrace {
namespace {

struct Expected {
  std::string directory;  // empty: nothing is expected
  int rank = 0;
  std::int64_t last = 0;
  Attendance seen;
  std::set<std::int64_t> traced;  // of those that are awaited, begun already
  pid_t process = 0;              // a forked child that ends says nothing

  void leave() noexcept {
    std::error_code error;
    if (directory.empty() || process != ::getpid() || seen.awaited >= last ||
        !std::filesystem::is_directory(directory, error)) {
      return;
    }
    try {
      write_attendance(directory, rank, seen);
    } catch (const std::exception& problem) {
      log(LogLevel::kWarning, problem.what());
    }
  }
};

Expected& expected() {
  static auto* const instance = new Expected;  // outlives every static object
  return *instance;
}

void leave_at_exit() {
  expected().leave();
}

}  // namespace

void expect_steps(const std::string& directory, int rank, std::int64_t first, std::int64_t last) {
  static const bool registered = std::atexit(leave_at_exit) == 0;
  TTRACE_CHECK(registered, InternalError, "atexit() cannot register a function");
  expected() = {.directory = directory,
                .rank = rank,
                .last = last,
                .seen = {.awaited = first, .first = {}, .last = {}},
                .traced = {},
                .process = ::getpid()};
}

void note_step(std::int64_t iteration) {
  Expected& now = expected();
  now.seen.first = std::min(iteration, now.seen.first.value_or(iteration));
  now.seen.last = std::max(iteration, now.seen.last.value_or(iteration));
  if (iteration >= now.seen.awaited && iteration < now.last) {
    now.traced.insert(iteration);
  }
  while (now.seen.awaited < now.last && now.traced.contains(now.seen.awaited)) {
    ++now.seen.awaited;
  }
}

void expect_no_more() noexcept {
  expected().leave();
  expected().directory.clear();
}

}  // namespace ttrace
