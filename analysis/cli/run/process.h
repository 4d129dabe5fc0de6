// A program of the user with everything it starts: begun, watched, ended without a rest.
//
// Thread-safety: main thread only, one Program at a time; it reaps every child of this process.
// Sources: prctl(2) PR_SET_CHILD_SUBREAPER (orphans become our children, so that mpirun's process
// groups and daemons of their own session are found), proc(5) for the tree.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace ttrace::cli {

class Running {
 public:
  virtual ~Running() = default;

  // The wait status of the program once it has ended.
  [[nodiscard]] virtual std::optional<int> exit_status() = 0;

  // As end_all(), for the program and all that it started.
  virtual void end(std::chrono::milliseconds grace) = 0;
};

// SIGTERM to all that `alive` returns, SIGKILL to those that live after `grace` or a second
// interrupt. Returns when none is left; processes the kernel cannot end (waiting for a dead disk)
// are given up after a while with a warning.
void end_all(const std::function<std::vector<pid_t>()>& alive, std::chrono::milliseconds grace);

struct Launch {
  std::string command;                   // for /bin/sh -c
  std::vector<std::string> environment;  // all of it, NAME=value
  std::string log;                       // stdout and stderr go here; empty: where ours go
};

class Program : public Running {
 public:
  // Throws UsageError if the log cannot be written or no process can be made.
  explicit Program(const Launch& launch);
  ~Program() override;               // kills what is left
  Program(const Program&) = delete;  // owns processes
  Program& operator=(const Program&) = delete;

  [[nodiscard]] std::optional<int> exit_status() override;
  void end(std::chrono::milliseconds grace) override;

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
