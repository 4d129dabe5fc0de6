// What a run is asked to do, apart from its configuration.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "config.h"
#include "recompute.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron_mini {

enum class CommunicationBackend : std::uint8_t { kMpi, kNccl };

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
  std::vector<int> layer_tp;  // TP degree of each layer, which divides tp; empty: tp
  bool layer_dp = false;      // ranks that a smaller degree leaves free divide the samples; if not,
                          // the degree is 1 or tp, and all ranks compute the whole where it is 1
  bool zero1 = false;
  bool overlap_gather = false;
  int ep = 1;
  int etp = 1;  // tp if not given
  bool digest = false;
  std::string device = "cpu";  // type of the devices that the ranks compute on
  CommunicationBackend backend = CommunicationBackend::kMpi;  // of their tensors
};

// The configuration that the options name, with what they replace in it. Throws UsageError
// where it does not fit them.
[[nodiscard]] Config load_config(const Options& options);

}  // namespace megatron_mini
