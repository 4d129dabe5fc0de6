// One line of progress on the terminal; silent if stderr is not a terminal.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace ttrace::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();                             // leaves a started line standing
  ProgressLine(const ProgressLine&) = delete;  // owns the terminal's last line
  ProgressLine& operator=(const ProgressLine&) = delete;

  [[nodiscard]] bool visible() const { return visible_; }
  // Replaces the line.
  void show(const std::string& text);
  // The same, but no more than four times a second: what is called for every tensor.
  void show_rarely(const std::string& text);
  // Shows "WHAT 3 of 10" rarely. Nothing, where the line is not visible. Keeps a reference to it.
  [[nodiscard]] std::function<void(std::size_t done, std::size_t total)> counter(
      const std::string& what);
  // Lets the line stand; what follows begins a new one.
  void finish();
  // Removes the line.
  void clear();
  // A line of its own below.
  void print(const std::string& text);

 private:
  bool visible_;
  bool started_ = false;
  std::chrono::steady_clock::time_point shown_;  // by show_rarely
};

// "1.2 s"
[[nodiscard]] std::string seconds_text(double seconds);

}  // namespace ttrace::cli
