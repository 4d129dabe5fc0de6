#include "hooks/base/failure.h"

#include <ttrace/log.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace ttrace {

void Failure::set_file(std::string failed_file) {
  const std::lock_guard lock(mutex_);
  file_ = std::move(failed_file);
  if (failed()) {
    write_file();
  }
}

bool Failure::has_file() const {
  const std::lock_guard lock(mutex_);
  return !file_.empty();
}

void Failure::keep(const std::exception_ptr& error) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (failed()) {
      return;
    }
    error_ = error;
    failed_.store(true, std::memory_order_release);
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      message_ = exception.what();
    } catch (...) {
      message_ = "an exception of unknown type";
    }
    log(LogLevel::kError, "tracing stopped, but training continues: " + message_);
    write_file();
  } catch (...) {
    // Memory or disk ran out while we reported an error. failed() is set, which keeps the file from
    // being renamed; nothing more can be done without disturbing the training.
  }
}

std::string Failure::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

void Failure::raise_if_asked() const {
  if (raise_ && failed()) {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = error_;
    }
    std::rethrow_exception(error);
  }
}

void Failure::write_file() const {
  if (file_.empty()) {
    return;
  }
  const std::filesystem::path path(file_);
  const std::string temporary = file_ + ".tmp";
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(temporary);
  out << message_ << '\n';
  out.close();
  // On a full disk the file has no text, but its existence already ends the pass.
  std::filesystem::rename(temporary, path, error);
  if (!out || error) {
    log(LogLevel::kError, "cannot write " + file_);
  }
}

}  // namespace ttrace
