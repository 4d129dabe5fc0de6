// The traces of a zoom under common names: operators that are the same have one id in all of them.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "analysis/zoom/operator_sequence.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

namespace ttrace {

// One rank of the candidate.
struct ZoomedRank {
  OperatorSequence sequence;
  std::vector<std::optional<std::size_t>> partners;  // positions in the reference
  // Operators without a partner that do not hand on the one result that they read: copies and views
  // that rearrange it, and all-reduces that return something else than the reference has.
  std::set<std::size_t> changing;
};

struct ZoomedPair {
  OperatorSequence reference;
  std::vector<ZoomedRank> candidate;
  std::set<TensorId> paired;  // results of the reference that all ranks have which ran anything

  // Whether every rank adds up, later in the module, what it makes of this result over ranks.
  [[nodiscard]] bool is_summed_later(const TensorId& id) const;
};

// Aligns the candidate's operators with the reference's and gives their records the reference's
// ids. Records of operators without a partner are left out on both sides. Throws UsageError if one
// side ran no operator in the modules of the zoom.
[[nodiscard]] ZoomedPair align_operators(Trace& reference, Trace& candidate);

// The same for another pass of the reference's program, whose operators are those of `reference`
// but for casts.
void align_pass(const OperatorSequence& reference, Trace& pass);

}  // namespace ttrace
