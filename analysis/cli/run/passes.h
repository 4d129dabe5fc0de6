// One pass: a program of the user runs under TTRACE_* variables until its files are complete.
//
// Thread-safety: main thread only. Inside a NoteInterrupts.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace::cli {

// Variables by which a user says how to trace. All others of TTrace describe a pass.
inline constexpr std::array<std::string_view, 8> kUsersVariables{"TTRACE_ELEMENTS",
                                                                 "TTRACE_FILTER",
                                                                 "TTRACE_KEEP",
                                                                 "TTRACE_LOG",
                                                                 "TTRACE_NAMED",
                                                                 "TTRACE_ON_ERROR",
                                                                 "TTRACE_RING_BYTES",
                                                                 "TTRACE_SYNC"};

using Variables = std::map<std::string, std::string>;

struct Pass {
  std::string name;     // "reference", "noise 1 of 5", "candidate"
  std::string command;  // for /bin/sh -c
  Variables variables;  // TTRACE_*
  std::string trace;    // folder in which a `.failed` file explains a failure
  std::string log;
  std::function<bool()> complete;  // whether the files it is run for are there
  std::string remedy;              // added to the message of a failure; may be empty
  std::string awaited = "the trace was complete";  // when the program may end
  // What a program did not do that ended well and was never attached to, and what to do then.
  std::string unattached =
      "the program never called ttrace.attach (in C++: Session::attach); add TTrace's lines to it "
      "(docs/python.md, docs/cpp.md), or, if it has them, let its launcher forward the TTRACE_* "
      "variables";
  // The token that the complete files bear; empty where they bear none.
  std::function<std::string()> token = [] { return std::string(); };
  // KeeperPlace::variable(), where it may leave a keeper or go on from one; empty: it starts anew.
  std::string keeper = {};
};

struct PassLimits {
  double timeout = 600.0;  // seconds a pass may take
  double grace = 5.0;      // seconds from SIGTERM to SIGKILL
  std::size_t jobs = 0;    // repetitions of the reference at the same time; 0: as many as fit
  bool fresh = false;      // no pass goes on from a keeper
};

// The environment of a pass: ours without inherited OMPI_COMM_*, PMIX_* and TTRACE_* (but
// kUsersVariables), then `variables`, and a request to Open MPI's mpirun to hand those to other
// hosts. The request is left out where `command` has mpirun's -x, which excludes it.
[[nodiscard]] std::vector<std::string> pass_environment(const Variables& variables,
                                                        const std::string& command);

// Why the program of a finished trace failed after its traced steps, as far as that was seen before
// it was ended: run_pass() leaves the sentence next to the trace. Nothing if it did not.
[[nodiscard]] std::optional<std::string> failed_later(const std::string& trace);

// Removes what a failed try of a pass left, so that it can be run again: its trace, or, where it
// adds to a complete one, its `.failed` files.
void forget_failure(const Pass& pass);

// A pass that went on from a keeper and failed runs again from its start. Returns the seconds it
// took; the program and all it started have ended then. Calls `tick` with
// the seconds so far. Every pass gets a token of its own (TTRACE_RUN), which its files must bear.
// Throws UsageError for a failed pass (status, end of the log, `.failed` files; files of another
// pass) and Interrupted.
double run_pass(const Pass& pass,
                const PassLimits& limits,
                const std::function<void(double seconds)>& tick);

}  // namespace ttrace::cli
