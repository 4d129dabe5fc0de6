// The command line.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "../faults/planted.h"
#include "../options.h"

#include <optional>
#include <string>

namespace megatron_mini {

// Options and what is to be planted, or the text that was asked for instead of a run: --help,
// --list-bugs.
struct CommandLine {
  Options options;
  faults::Choice fault;
  std::optional<std::string> text;
};

// Throws UsageError for what is unknown, missing or does not fit `world_size` ranks.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv, int world_size);

}  // namespace megatron_mini
