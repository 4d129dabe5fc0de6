// Describes a communication between ranks, see collective.h.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// What each operation computes along the first dimension, where x_i is the input of the group's
// i-th rank and y_i its output.
enum class CollectiveOperation : std::uint8_t {
  kAllReduce,      // y_i = reduction of all x
  kReduceScatter,  // y_i = i-th of `size` equal parts of the reduction
  kAllGather,      // y_i = all x, one after the other
  kAllToAll,       // y_i = the part of every x_j that is meant for i, one after the other
  kBroadcast,      // y_i = x_root
};

// Their names in text are the enumerators without the k, in snake_case: "all_reduce", "sum".
enum class CollectiveReduction : std::uint8_t { kSum, kMax, kAverage };

// Slot of kind collective_input that holds the call's text as bytes.
inline constexpr int kCollectiveCallSlot = 1;

struct CollectiveCall {
  CollectiveOperation operation = CollectiveOperation::kAllReduce;
  CollectiveReduction reduction = CollectiveReduction::kSum;  // of all-reduce and reduce-scatter
  // Name of the group, made of letters, digits, _ and -. All ranks of a group use the same name,
  // and no other group uses it.
  std::string group = {};
  int rank = 0;  // this rank's number in the group
  int size = 1;  // number of ranks in the group; with 1 nothing is recorded
  int root = 0;  // broadcast: the sender's number in the group
  // All-to-all: rows of the first dimension for every rank of the group. Empty: equal parts.
  std::vector<std::int64_t> rows_sent = {};
  std::vector<std::int64_t> rows_received = {};
  // Path of the module in which the call happened. The tracer fills it in; it may stay empty.
  std::string module = {};

  bool operator==(const CollectiveCall&) const = default;
};

// "all-reduce (sum)"
[[nodiscard]] std::string description_of(const CollectiveCall& call);

// The text that a trace keeps of a call: JSON of everything but `group`, which the id has.
[[nodiscard]] std::string to_text(const CollectiveCall& call);
// Inverse of to_text(); `group` is empty. Throws FormatError for any other text.
[[nodiscard]] CollectiveCall parse_collective_call(std::string_view text);

}  // namespace ttrace
