// The command line.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "bugs.h"
#include "config.h"
#include "mutants.h"
#include "recompute.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron_mini {

struct Options {
  std::string config;
  std::string annotations;  // how the model's tensors are placed
  std::optional<std::string> precision;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> micro_batches;
  std::int64_t steps = 1;
  int tp = 1;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  int vpp = 1;
  std::optional<std::int64_t> first_stage_layers;
  std::optional<std::int64_t> last_stage_layers;
  bool sequence_parallel = false;
  RecomputePlan recompute{};
  std::vector<int> layer_tp;  // TP degree of each layer, 1 or tp; empty: tp
  bool zero1 = false;
  bool overlap_gather = false;
  int ep = 1;
  int etp = 1;  // tp if not given
  Bugs bugs{};
  Mutant mutant{};
  bool digest = false;
};

// Options, or the text that was asked for instead of a run: --help, --list-bugs.
struct CommandLine {
  Options options;
  std::optional<std::string> text;
};

// Throws ttrace::UsageError for what is unknown, missing or does not fit `world_size` ranks.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv, int world_size);

// The configuration that the options name, with what they replace in it. Throws ttrace::UsageError
// where it does not fit them.
[[nodiscard]] Config load_config(const Options& options);

}  // namespace megatron_mini
