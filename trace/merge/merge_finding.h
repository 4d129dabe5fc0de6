// The defects that the shards of one tensor can have.
//
// Thread-safety: values and a free function without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

enum class MergeDefect : std::uint8_t {
  kShapesContradict,  // ranks claim different logical shapes, sparse dimensions, partial counts or
                      // element types
  kGap,               // logical elements that no rank holds
  kOverlap,           // elements held by several ranks in different regions
  kReplicasDisagree,  // copies that must be equal are not
  kAddendsMissing,    // fewer partial sums than declared
};

[[nodiscard]] std::string_view name_of(MergeDefect defect);

// A finding: a value, never an exception.
struct MergeFinding {
  MergeDefect defect = MergeDefect::kGap;
  std::vector<int> ranks;   // ascending; those that contradict, disagree or are missing
  std::string message;      // one sentence with ranks, logical ranges `[0:64, 3]` and values
  double difference = 0.0;  // kReplicasDisagree: largest |difference| between two copies
};

}  // namespace ttrace
