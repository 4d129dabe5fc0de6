// The requests of the TTRACE_* variables; docs/architecture.md lists them.
//
// Thread-safety: values.
#pragma once

#include "trace/base/keep.h"
#include "trace/base/pattern.h"
#include "trace/base/zoom_target.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

enum class Pass : std::uint8_t {
  kReference,
  kCandidate,
  kNoise,
  kForced,  // the reference, with the candidate's values in place of its own after every module
  kGolden,  // the reference in FP64, from the reference's parameters
};

[[nodiscard]] std::string_view name_of(Pass pass);

// Memory of an accelerator that copied tensors may occupy on their way to the host, and as much
// pinned memory of the host. It is as large as the writer's queue, so bytes that fit into the queue
// need not move.
inline constexpr std::size_t kRingBytes = std::size_t{256} << 20;

struct Environment {
  Pass pass = Pass::kReference;
  std::string directory;        // TTRACE_DIR; may be empty in a noise pass
  std::string reference;        // TTRACE_REFERENCE; may be empty except in a noise pass
  std::string candidate;        // TTRACE_CANDIDATE: the trace whose routing or values are used;
                                // empty: the program uses its own
  std::string settled;          // TTRACE_SETTLED: where tensors of it lie of which nobody said it;
                                // empty: unknown
  std::string run;              // TTRACE_RUN: the token of this pass, or empty
  int noise_seed = 0;           // TTRACE_NOISE_SEED, from 1; 0 outside noise passes, and in the
                                // self-check, which moves nothing
  std::int64_t first_step = 0;  // TTRACE_STEPS, half-open
  std::int64_t last_step = 1;
  std::int64_t every = 1;         // of these, from the first one on
  std::string precision;          // TTRACE_PRECISION, or empty: not checked
  bool own_start = false;         // TTRACE_START=own
  bool dyadic = false;            // TTRACE_INPUTS=dyadic: every module is given small integers
  std::string filter_text;        // TTRACE_FILTER as given, for messages
  std::optional<Pattern> filter;  // the same, compiled
  std::vector<Pattern> untraced;  // RunDescription::untraced, which the tracer adds
  bool named = false;             // TTRACE_NAMED=1
  Keeping keeping;                // TTRACE_KEEP, and TTRACE_ELEMENTS beside it
  bool collectives = false;  // TTRACE_COLLECTIVES=1: record what collectives are given and return
  std::optional<ZoomTarget> zoom;  // TTRACE_ZOOM: list every operator of these modules
  bool count_only = false;         // TTRACE_COUNT=1: count what would be written, write no trace
  bool raise = false;              // TTRACE_ON_ERROR=raise
  bool blocking_copies = false;    // TTRACE_SYNC=stream: wait for every copy from an accelerator
  std::size_t ring_bytes = kRingBytes;  // TTRACE_RING_BYTES

  [[nodiscard]] bool traces(std::int64_t iteration) const {
    return iteration >= first_step && iteration < last_step &&
           (iteration - first_step) % every == 0;
  }
  // Whether this iteration is one of those before the traced ones, whose round-off a noise pass
  // carries into them.
  [[nodiscard]] bool leads_up(std::int64_t iteration) const {
    return pass == Pass::kNoise && noise_seed > 0 && iteration < first_step;
  }
  [[nodiscard]] std::vector<std::int64_t> steps() const;
  // Whether to record a tensor with this id.
  [[nodiscard]] bool wants(const std::string& id) const {
    return (!filter || filter->found_in(id)) &&
           std::none_of(untraced.begin(), untraced.end(), [&](const Pattern& pattern) {
             return pattern.found_in(id);
           });
  }
};

// Returns nothing if TTRACE_PASS is unset or empty. Throws UsageError that names the variable, its
// value and the allowed values.
[[nodiscard]] std::optional<Environment> read_environment();

}  // namespace ttrace
