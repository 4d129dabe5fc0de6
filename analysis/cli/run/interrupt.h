// Ctrl-C and its kin while programs of ours are running: they are noted, so that everything we
// started can be ended first. And the signal of a mapped file that shrinks.
//
// Thread-safety: main thread only, one NoteInterrupts at a time.
#pragma once

#include <array>
#include <chrono>
#include <csignal>

namespace ttrace::cli {

// Thrown after everything was ended; the program leaves with 128 + signal.
struct Interrupted {
  int signal = 0;
};

// While it lives SIGINT, SIGTERM and SIGHUP are noted. Those that were ignored stay so (nohup).
class NoteInterrupts {
 public:
  NoteInterrupts();
  ~NoteInterrupts();
  NoteInterrupts(const NoteInterrupts&) = delete;  // owns the process's signal handlers
  NoteInterrupts& operator=(const NoteInterrupts&) = delete;

 private:
  std::array<struct sigaction, 3> before_{};
};

// The first signal noted, or 0.
[[nodiscard]] int interrupt_signal();
// The number of noted interrupts: a user who interrupts twice does not want to wait.
[[nodiscard]] int interrupt_count();

// Traces are read through mmap: where somebody cuts a file short meanwhile, or its disk fails, the
// program says so and exits with 2 instead of dying of SIGBUS.
void explain_lost_files();

// Returns early when a signal is noted.
void wait_or_interrupt(std::chrono::milliseconds duration);

}  // namespace ttrace::cli
