// The failures that TTrace reports by exception.
//
//   try {
//     const auto trace = ttrace::StoredTrace::open("runs/1/candidate");
//   } catch (const ttrace::Error& error) {
//     std::fprintf(stderr, "%s\n", error.message().c_str());
//   }
//
// UsageError and FormatError: the user gave TTrace something wrong. InternalError: TTrace is
// broken. A candidate that differs from its reference is neither; that is a result, never an
// exception.
//
// Thread-safety: plain values.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ttrace {

// Base of all exceptions that TTrace throws. message() is one sentence for the user: it names the
// path or name, the values that clash, and the remedy. what() is that sentence with the source line
// that threw it.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, const char* file, int line);
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
};

// An argument, the configuration or an environment variable is wrong.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A file is damaged, foreign, incomplete or of a newer format, or reading or writing it failed.
class FormatError : public Error {
 public:
  using Error::Error;
};

// A defect of TTrace.
class InternalError : public Error {
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

// Throws an error whose message is the concatenation of the parts:
//   TTRACE_THROW(UsageError, "there is no annotation file at ", path, "; pass its path.");
#define TTRACE_THROW(Type, ...) \
  throw ::ttrace::Type(::ttrace::detail::concatenate(__VA_ARGS__), __FILE__, __LINE__)

// The same if `condition` does not hold:
//   TTRACE_CHECK(offset < size, FormatError, path, " ends within its table; write it again.");
#define TTRACE_CHECK(condition, Type, ...) \
  do {                                     \
    if (!(condition)) {                    \
      TTRACE_THROW(Type, __VA_ARGS__);     \
    }                                      \
  } while (false)
