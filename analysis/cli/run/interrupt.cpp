#include "analysis/cli/run/interrupt.h"

#include <atomic>
#include <cstddef>
#include <poll.h>
#include <unistd.h>

namespace ttrace::cli {
namespace {

constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t signals_noted = 0;

extern "C" void note_signal(int signal) {
  if (first_signal == 0) {
    first_signal = signal;
  }
  signals_noted = signals_noted + 1;
}

extern "C" void say_that_a_file_is_lost(int /*signal*/) {
  static constexpr char kSentence[] =
      "ttrace: error: a trace file was cut short, or its disk failed, while ttrace read it; run "
      "the pass again while nothing else writes to the trace, then compare\n";
  // Several threads may read the file; the first one speaks for all and ends the program.
  static std::atomic_flag said = ATOMIC_FLAG_INIT;
  while (said.test_and_set()) {
    ::pause();
  }
  static_cast<void>(!::write(STDERR_FILENO, kSentence, sizeof kSentence - 1));
  ::_exit(2);  // could not compare
}

}  // namespace

void explain_lost_files() {
  struct sigaction lost {};
  lost.sa_handler = say_that_a_file_is_lost;
  sigaction(SIGBUS, &lost, nullptr);
}

NoteInterrupts::NoteInterrupts() {
  first_signal = 0;
  signals_noted = 0;
  struct sigaction noted {};
  noted.sa_handler = note_signal;
  sigfillset(&noted.sa_mask);  // nested handlers would note the later signal first
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) {
      sigaction(kSignals[i], &noted, nullptr);
    }
  }
}

NoteInterrupts::~NoteInterrupts() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
  }
}

int interrupt_signal() {
  return first_signal;
}

int interrupt_count() {
  return signals_noted;
}

void wait_or_interrupt(std::chrono::milliseconds duration) {
  // Unlike sleep_for, poll ends with a signal.
  poll(nullptr, 0, static_cast<int>(duration.count()));
}

}  // namespace ttrace::cli
