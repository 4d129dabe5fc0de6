// The failures TTrace reports by exception.
//
// Three things can go wrong and they are kept apart: the user gave us something wrong (UsageError,
// FormatError), we are broken (InternalError), or the candidate differs from the reference. The
// last one is a finding, a value, and never an exception.
#pragma once

#include <ttrace/export.h>

#include <sstream>
#include <stdexcept>
#include <string>

namespace ttrace {

// Base of all exceptions thrown by TTrace. what() is the message with the place it was thrown from;
// message() is one sentence for the user: path or name, the values that clash, the remedy.
class TTRACE_API Error : public std::runtime_error {
 public:
  Error(const std::string& message, const char* file, int line);
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
};

// The caller's argument, configuration or environment is wrong.
class TTRACE_API UsageError : public Error {
 public:
  using Error::Error;
};

// A file is damaged, foreign, incomplete or of a newer format; also failed reads and writes.
class TTRACE_API FormatError : public Error {
 public:
  using Error::Error;
};

// A promise inside TTrace is broken: a defect of ours.
class TTRACE_API InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {
template <class... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
}  // namespace detail

}  // namespace ttrace

// TTRACE_THROW(UsageError, "no annotation file at ", path, "; pass ...")
#define TTRACE_THROW(Type, ...) \
  throw ::ttrace::Type(::ttrace::detail::concatenate(__VA_ARGS__), __FILE__, __LINE__)

// TTRACE_CHECK(offset < size, FormatError, path, ": ...")
#define TTRACE_CHECK(condition, Type, ...) \
  do {                                     \
    if (!(condition)) {                    \
      TTRACE_THROW(Type, __VA_ARGS__);     \
    }                                      \
  } while (false)
