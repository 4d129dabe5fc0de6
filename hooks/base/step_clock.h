// The clock of one traced step on this rank.
//
// Two clocks, because each alone is half of what a timeline needs: durations come from the
// monotonic one, which nobody sets, and the wall clock's time of the beginning puts the ranks of
// one machine (and of machines whose clocks agree) next to each other.
//
// Thread-safety: a value.
#pragma once

#include <chrono>
#include <cstdint>

namespace ttrace {

class StepClock {
 public:
  // Begins now.
  StepClock()
      : began_(nanoseconds(std::chrono::system_clock::now())),
        start_(nanoseconds(std::chrono::steady_clock::now())) {}

  // Nanoseconds since 1970-01-01 UTC.
  [[nodiscard]] std::uint64_t began() const { return began_; }
  // Nanoseconds since the step began; never decreases.
  [[nodiscard]] std::uint64_t elapsed() const {
    return nanoseconds(std::chrono::steady_clock::now()) - start_;
  }

 private:
  template <class TimePoint>
  static std::uint64_t nanoseconds(TimePoint time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
  }

  std::uint64_t began_;
  std::uint64_t start_;
};

}  // namespace ttrace
