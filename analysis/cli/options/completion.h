// Completion of the command line by shells, made from the same tables as --help.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/cli/options/manual.h"

#include <iosfwd>
#include <span>
#include <string>

namespace ttrace::cli {

// Prints the script with which `shell` ("bash", "zsh" or "fish") completes commands, options, and
// values that a table lists. Every other value is completed as the name of a file. Throws
// UsageError for another shell.
void print_completion(std::ostream& out,
                      const std::string& shell,
                      std::span<const Manual> commands);

}  // namespace ttrace::cli
