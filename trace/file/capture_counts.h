// Counts of what a pass would record. A counting capture (TTRACE_COUNT=1) leaves them instead of a
// trace.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ttrace {

struct TensorCount {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;

  TensorCount& operator+=(const TensorCount& other);
  bool operator==(const TensorCount&) const = default;
};

// The counts of one rank.
struct CaptureCounts {
  int rank = 0;
  int world_size = 1;
  std::map<std::int64_t, std::map<Kind, TensorCount>> steps;
  TensorCount start;  // parameters before the optimizer was built; none in a candidate pass

  bool operator==(const CaptureCounts&) const = default;
};

// The sum over all steps and kinds, without the start parameters.
[[nodiscard]] TensorCount total(const CaptureCounts& counts);

// DIR/counts/rank00003.json
[[nodiscard]] std::string counts_file(const std::string& directory, int rank);
// Writes through a temporary name. Throws FormatError.
void write_counts(const std::string& directory, const CaptureCounts& counts);
// The counts of all ranks, ascending. Throws FormatError for a file that is missing or that TTrace
// did not write.
[[nodiscard]] std::vector<CaptureCounts> read_counts(const std::string& directory);
// Whether the folder has the counts of every rank. Throws FormatError for a file that TTrace did
// not write.
[[nodiscard]] bool counts_are_complete(const std::string& directory);

}  // namespace ttrace
