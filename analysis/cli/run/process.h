// A program of the user with everything it starts: begun, watched, ended without a rest.
//
// Thread-safety: main thread only, one Program at a time; it reaps every child of this process.
// Sources: prctl(2) PR_SET_CHILD_SUBREAPER (orphans become our children, so that mpirun's process
// groups and daemons of their own session are found), proc(5) for the tree.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace ttrace::cli {

struct Launch {
  std::string command;                   // for /bin/sh -c
  std::vector<std::string> environment;  // all of it, NAME=value
  std::string log;                       // stdout and stderr go here
};

class Program {
 public:
  // Throws UsageError if the log cannot be written or no process can be made.
  explicit Program(const Launch& launch);
  ~Program();                        // kills what is left
  Program(const Program&) = delete;  // owns processes
  Program& operator=(const Program&) = delete;

  // The wait status of the command once it has ended.
  [[nodiscard]] std::optional<int> exit_status();

  // SIGTERM to all that live, SIGKILL to those that live after `grace` or a second interrupt.
  // Returns when none is left; processes the kernel cannot end (waiting for a dead disk) are given
  // up after a while with a warning.
  void end(std::chrono::milliseconds grace);

 private:
  void reap();

  pid_t pid_ = -1;
  std::optional<int> status_;
};

// Text as one word of a shell.
[[nodiscard]] std::string shell_word(const std::string& text);

// "exited with status 3", "was ended by signal 11 (Segmentation fault)".
[[nodiscard]] std::string describe_exit(int wait_status);

}  // namespace ttrace::cli
