// Several checks, or several passes of one, at the same time, as many as the memory holds. Each is
// a process of its own, which runs and ends what it starts.
//
// Thread-safety: main thread only. Inside a NoteInterrupts.
#pragma once

#include "trace/file/manifest.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ttrace::cli {

struct Task {
  std::string name = {};
  std::function<int()> work = {};  // in a process of its own; returns its exit code
  std::string output = {};         // stdout goes to this file
  std::string errors = {};         // and stderr to this one
  std::uint64_t memory = 0;        // bytes that it took before; 0: unknown
};

// Work of a task: this program with other arguments, without its name.
[[nodiscard]] std::function<int()> this_program(std::vector<std::string> arguments);

// How many programs that run as the one that wrote this manifest may run at the same time, unless
// the user says it: one where it ran on an accelerator, whose memory nobody has measured;
// `processes` are what each of them needs.
[[nodiscard]] std::size_t default_at_a_time(const Manifest& manifest, unsigned processes);

struct TaskEnd {
  int exit_code = 0;  // 128 + n: ended by signal n
  double seconds = 0.0;
  std::uint64_t memory = 0;  // the most that it took, as far as was seen
};

// How many may run at the same time.
struct SideBySide {
  std::size_t at_a_time = 1;
  // Asked before a task begins; false leaves it out.
  std::function<bool(std::size_t task)> wanted = {};
  std::function<void(std::size_t task, const TaskEnd& end)> ended = {};
  // The names of those that run, and the seconds since the first one began.
  std::function<void(const std::string& running, double seconds)> tick = {};
};

// Runs the tasks in their order. One whose need for memory is unknown, or larger than what is
// available while others run, waits until it is alone. Ends all that run and throws Interrupted
// after an interrupt; throws UsageError where no process can be made.
void run_side_by_side(const std::vector<Task>& tasks, const SideBySide& how);

}  // namespace ttrace::cli
