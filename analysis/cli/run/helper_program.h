// A short program that a command asks something: run to its end, with all that it printed.
//
// Thread-safety: main thread only. Inside a NoteInterrupts.
#pragma once

#include "analysis/cli/run/passes.h"

#include <chrono>
#include <optional>
#include <string>

namespace ttrace::cli {

struct HelperOutcome {
  bool well = false;   // it ended with exit code 0
  std::string output;  // of both streams
};

// Runs `command` (for /bin/sh -c) with its log in `folder`; it is ended after `longest`, if that is
// given. Throws Interrupted.
[[nodiscard]] HelperOutcome run_helper(const std::string& command,
                                       const std::string& folder,
                                       const Variables& variables = {},
                                       std::optional<std::chrono::seconds> longest = {});

}  // namespace ttrace::cli
