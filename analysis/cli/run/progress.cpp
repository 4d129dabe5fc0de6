#include "analysis/cli/run/progress.h"

#include <fmt/core.h>

#include <iostream>
#include <unistd.h>

namespace ttrace::cli {
namespace {

constexpr std::chrono::milliseconds kRarely{250};

}  // namespace

ProgressLine::ProgressLine() : visible_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  finish();
}

void ProgressLine::show(const std::string& text) {
  if (visible_) {
    std::cerr << "\r\x1b[K" << text << std::flush;
    started_ = true;
  }
}

void ProgressLine::show_rarely(const std::string& text) {
  if (const auto now = std::chrono::steady_clock::now(); now - shown_ > kRarely) {
    show(text);
    shown_ = now;
  }
}

std::function<void(std::size_t, std::size_t)> ProgressLine::counter(const std::string& what) {
  if (!visible_) {
    return {};
  }
  return [this, what](std::size_t done, std::size_t total) {
    show_rarely(fmt::format("{} {} of {}", what, done, total));
  };
}

void ProgressLine::finish() {
  if (started_) {
    std::cerr << std::endl;
    started_ = false;
  }
}

void ProgressLine::clear() {
  if (started_) {
    std::cerr << "\r\x1b[K" << std::flush;
    started_ = false;
  }
}

void ProgressLine::print(const std::string& text) {
  if (visible_) {
    finish();
    std::cerr << text << std::endl;
  }
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.1f} s", seconds);
}

}  // namespace ttrace::cli
