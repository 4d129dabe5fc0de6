// How a process of a program ended, read from what the program and its launcher printed.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ttrace::cli {

struct ProgramException {
  std::string text;   // "ValueError: 30 is not divisible by 4"
  std::string where;  // "train.py:88, in build", the innermost line of the user's own; may be empty
  std::string rank;   // as torch or mpirun marks its lines; empty where they are not marked
};

// The first exception of Python or C++ that nobody caught, because what follows on other ranks is
// its consequence. Of Python exceptions that follow from each other, the last one. Launchers'
// reports of failed processes are passed over. Nothing where the log has no exception.
[[nodiscard]] std::optional<ProgramException> first_exception(std::string_view log);

struct SilentEnd {
  std::string rank;
  int signal;
};

// The first process that torchrun or mpirun reports as ended by a signal. Such a process prints
// nothing itself.
[[nodiscard]] std::optional<SilentEnd> first_silent_end(std::string_view log);

}  // namespace ttrace::cli
