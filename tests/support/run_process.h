// Runs a real program for a test: arguments, environment, folder and time limit in; exit code and
// output out.
//
// Output goes to files, so that a process left behind cannot hold a pipe of ours open.
// Thread-safety: independent objects may be used from different threads.
#pragma once

#include "support/patience.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace ttrace::testing {

struct ProcessOptions {
  std::vector<std::string> arguments;              // [0]: a path, or a name found through PATH
  std::map<std::string, std::string> environment;  // added to ours; an empty value removes
  std::string directory;                           // to run in; empty: ours
  std::chrono::seconds timeout = kHang;            // then SIGKILL to its process group
  bool terminal = false;                           // stdout and stderr are one, their text is `out`
};

struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;
  bool timed_out = false;
  std::string out;
  std::string err;
  double seconds = 0.0;
};

// A started program in a process group of its own. Killed on destruction if it still runs.
class RunningProcess {
 public:
  // Throws std::runtime_error where it cannot be started.
  explicit RunningProcess(const ProcessOptions& options);
  ~RunningProcess();
  RunningProcess(const RunningProcess&) = delete;  // owns a process
  RunningProcess& operator=(const RunningProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Call once.
  [[nodiscard]] ProcessResult wait();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  [[nodiscard]] bool ended(int& status) const;
  void drain_terminal();

  std::chrono::steady_clock::time_point start_;
  std::chrono::seconds timeout_;
  File out_;
  File err_;
  int terminal_ = -1;  // our end of the pseudo-terminal
  std::string terminal_text_;
  pid_t pid_ = -1;
};

[[nodiscard]] ProcessResult run_process(const ProcessOptions& options);

// Command lines (words joined by spaces) of living processes in which `word` occurs, ours excluded.
[[nodiscard]] std::vector<std::string> processes_with(const std::string& word);

// The whole file; empty if there is none.
[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace ttrace::testing
