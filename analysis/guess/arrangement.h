// In which ways a tensor of one program can be one of the other's: the same dimensions in another
// order, put together, or taken apart.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Words of the dims grammar for both sides; both empty where the dimensions are the same.
struct Arrangement {
  std::string reference;
  std::string candidate;

  [[nodiscard]] bool is_same() const { return reference.empty(); }
  auto operator<=>(const Arrangement&) const = default;
};

// All arrangements that turn a tensor of the first shape into one of the second one, "the same"
// first. Dimensions of one element move freely. Empty: none.
[[nodiscard]] std::vector<Arrangement> arrangements(std::span<const std::int64_t> reference,
                                                    std::span<const std::int64_t> candidate);

// The reference's tensor in the candidate's arrangement.
[[nodiscard]] MergeResult to_candidate(const MergeResult& reference, const Arrangement& how);

// ||left - right|| as a share of the larger norm; 0 where both are zero, infinite for other sizes.
// Requires: tensors in F64.
[[nodiscard]] double relative_distance(const MergeResult& left, const MergeResult& right);

}  // namespace ttrace
