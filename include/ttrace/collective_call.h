// What a communication between ranks was to do, so that it can be checked without a reference.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <ttrace/export.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// With x_i the input of the group's i-th rank and y_i its output, all along the first dimension:
enum class CollectiveOperation : std::uint8_t {
  kAllReduce,      // y_i = reduction of all x
  kReduceScatter,  // y_i = i-th of `size` equal parts of the reduction
  kAllGather,      // y_i = all x, one after the other
  kAllToAll,       // y_i = of every x_j the part meant for i, one after the other
  kBroadcast,      // y_i = x_root
};

// The names are the enumerators without the k, in snake_case ("all_reduce", "sum").
enum class CollectiveReduction : std::uint8_t { kSum, kMax, kAverage };

// Slot of kind collective_input that holds the call's text as bytes.
inline constexpr int kCollectiveCallSlot = 1;

struct TTRACE_API CollectiveCall {
  CollectiveOperation operation = CollectiveOperation::kAllReduce;
  CollectiveReduction reduction = CollectiveReduction::kSum;  // of all-reduce and reduce-scatter
  std::string group =
      {};        // letters, digits, _ and -; its own for every group, the same on its ranks
  int rank = 0;  // this rank's number in the group
  int size = 1;
  int root = 0;  // broadcast: who sends, by its number in the group
  // All-to-all: rows of the first dimension for every rank of the group. Empty: equal parts.
  std::vector<std::int64_t> rows_sent = {};
  std::vector<std::int64_t> rows_received = {};
  std::string module = {};  // where it happened, filled in by the tracer; may be empty

  bool operator==(const CollectiveCall&) const = default;
};

// "all-reduce (sum)"
[[nodiscard]] TTRACE_API std::string description_of(const CollectiveCall& call);

// What a trace keeps of a call, as JSON; round-trips but for `group`, which the id has.
[[nodiscard]] TTRACE_API std::string to_text(const CollectiveCall& call);
// Throws FormatError.
[[nodiscard]] TTRACE_API CollectiveCall parse_collective_call(std::string_view text);

}  // namespace ttrace
