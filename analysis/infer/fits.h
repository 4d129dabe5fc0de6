// The placements that the bytes of one tensor allow: every way to cut and to sum it that the dims
// grammar can express and the sizes allow is compared with the reference.
//
// Declared placements play no part. Sizes alone exclude most candidates. Of the rest, those stay
// that agree as well as the best one does, within the uncertainty of that many elements.
//
// Thread-safety: free functions without shared state but the table, which locks.
#pragma once

#include "analysis/infer/cuts.h"
#include "analysis/infer/holders.h"
#include "trace/merge/merge.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// One placement that agrees.
struct PlacementFit {
  std::string dims;    // of the grammar
  std::string region;  // the same without what is summed
  int complexity = 0;
  double error = 0.0;   // relative, at `factor`
  double factor = 1.0;  // of local values (their sums) to logical ones; 1 if that agrees as well

  bool operator==(const PlacementFit&) const = default;
};

// Whether a placement with this error explains more than half of the values.
[[nodiscard]] bool has_signal(double error);

struct TensorFits {
  std::vector<PlacementFit> fits;  // the simplest first
  std::string sizes;               // logical and of every rank: tensors that may lie alike
  std::size_t possible = 0;        // placements that the sizes allow
  double error = 0.0;              // of the best

  [[nodiscard]] bool has_signal() const { return ttrace::has_signal(error); }
};

// Requires: shards of `holders`, in their order; a reference that has its tensor. Empty if no
// placement explains the sizes.
[[nodiscard]] TensorFits fits_of(std::span<const Shard> shards,
                                 const MergeResult& reference,
                                 const Holders& holders,
                                 CutTable& table);

// The dims of these placements (by holder), where one of the possible ones is the same; else empty.
[[nodiscard]] std::string dims_text(std::span<const Placement> placements,
                                    const Holders& holders,
                                    CutTable& table);

// A flat range of a vector is a part of it as any other: the same claim as a cut dimension.
[[nodiscard]] Placement without_flat_range_of_one_dimension(Placement placement);

// Whether both place every local element alike: dims, addends and flat ranges. Addends may be
// numbered in another order; scales do not matter.
[[nodiscard]] bool place_alike(std::span<const Placement> left, std::span<const Placement> right);

}  // namespace ttrace
