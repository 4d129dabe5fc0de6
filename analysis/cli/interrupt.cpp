#include "interrupt.h"

#include <cstddef>
#include <poll.h>

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

}  // namespace

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
