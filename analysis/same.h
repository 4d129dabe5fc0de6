// Compares two runs of one program bit for bit: where do they part, and with which settings did
// they run? No reference and no bound takes part.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// A record that the two runs do not have alike.
struct UnequalRecord {
  TensorId id;
  int rank = 0;
  std::string how;         // "37 of 4096 elements differ, by at most 1.2e-07"
  std::size_t before = 0;  // records of this rank that came before it, all of them equal
  std::uint64_t instant =
      0;  // on the first run's clock: nanoseconds, or the running number on its rank
};

struct Sameness {
  std::size_t records = 0;             // compared, over all ranks and steps
  std::vector<UnequalRecord> unequal;  // by rank, in execution order
  std::optional<UnequalRecord> first;  // of all ranks', the one that was computed first
  std::vector<std::string> settings;   // "threads 8 in the first run, 4 in the second"
  [[nodiscard]] bool same() const { return unequal.empty(); }
};

// Throws UsageError if the traces have other ranks or steps than each other, FormatError for a
// damaged record.
[[nodiscard]] Sameness compare_runs(const Trace& first, const Trace& second);

// What may make a record of this kind differ although all before it is equal, and what to do.
[[nodiscard]] std::string why_unequal(Kind kind);

}  // namespace ttrace
