// How this program refuses what it cannot do.
//
// Thread-safety: values and pure functions.
#pragma once

#include <sstream>
#include <stdexcept>

namespace megatron_mini {

// what() is one sentence for the user: the path or name, the values that clash, the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line, the configuration or a file that they name is wrong.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A promise inside this program is broken.
class InternalError : public Error {
 public:
  using Error::Error;
};

// fail<UsageError>("cannot read text ", file);
template <class Failure, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Failure(message.str());
}

// require<UsageError>(steps >= 1, "--steps must be at least 1");
template <class Failure, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) {
    fail<Failure>(parts...);
  }
}

}  // namespace megatron_mini
