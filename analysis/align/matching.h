// Brings together what both traces hold under one id, in the order in which the reference ran.
//
// The reference is one process, so the order numbers of its records are a total order: forward,
// backward, optimizer, micro-batch by micro-batch. A tensor that only the candidate has gets the
// place just before the next record of its rank that the reference has too; ties go to the lowest
// rank, then to that rank's own order.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ttrace {

struct Match {
  TensorId id;
  std::uint64_t order = 0;       // order number of the place described above
  std::vector<Shard> reference;  // ascending ranks; empty if this side does not have the id
  std::vector<Shard> candidate;
  // The position of a recomputed tensor's first forward in the list, if it was recorded.
  std::optional<std::size_t> first_forward;
  // The position of the margins of choices of experts in the list, if they were recorded.
  std::optional<std::size_t> margins;
  // The position of the choices of experts that its module, or the nearest module around it, made
  // in the same micro-batch: its values may be in their order. Nothing for parameters and choices.
  std::optional<std::size_t> choices;
  // The position of an operand's scale, or of a scale's operand, in the list, if it was recorded.
  std::optional<std::size_t> scale;
  std::optional<std::size_t> operand;
  // The position of an updated parameter's high-precision copy in the list, if it was recorded.
  std::optional<std::size_t> master;
};

// The spans point into the traces. RankFile sees to it that a rank holds an id once. Draws of data
// are left out: programs may draw the same data in other pieces, and what the model is given is
// compared.
[[nodiscard]] std::vector<Match> match(const Trace& reference, const Trace& candidate);

// The tensors of one trace, in its execution order: `reference` holds their shards, nobody is the
// candidate. Ranks run side by side, so a tensor stands where its earliest rank has it.
[[nodiscard]] std::vector<Match> tensors_of(const Trace& trace);

}  // namespace ttrace
