// The first error inside callbacks, hooks and the writer thread. It is kept, logged once, reported
// to `ttrace check` through a `.failed` file, and thrown at the next call of the program if the
// user asked for that.
//
// Thread-safety: keep(), failed() and message() from any thread; the others from the training
// thread.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

namespace ttrace {

class Failure {
 public:
  explicit Failure(bool raise) : raise_(raise) {}

  // The file in which keep() leaves the message; empty while no step is traced.
  void set_file(std::string failed_file);
  // Whether a step is traced.
  [[nodiscard]] bool has_file() const;
  // The first call counts; later ones are consequences. Never throws.
  void keep(const std::exception_ptr& error) noexcept;
  // Cheap: every hook asks.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string message() const;
  // Rethrows what was kept, under TTRACE_ON_ERROR=raise.
  void raise_if_asked() const;

 private:
  void write_file() const;

  const bool raise_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::string message_;  // with the place of birth
  std::string file_;
};

}  // namespace ttrace
