// The right results of a collective, computed from its members' inputs.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge.h"

#include <ttrace/collective_call.h>

#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// One rank in a collective, in the order of the group.
struct Member {
  CollectiveCall call;
  Shard input;
  Shard output;
};

struct CollectiveFault {
  std::string sentence;
  std::vector<int> ranks;  // world ranks concerned
};

// Returns nothing if all outputs follow from the inputs; self_check.h has the bounds of sums.
// Without `any_order` sums must be exact to the last bit. Requires: all members of the group, with
// one operation.
[[nodiscard]] std::optional<CollectiveFault> check_values(const std::vector<Member>& members,
                                                          bool any_order);

}  // namespace ttrace
