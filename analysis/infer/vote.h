// Tensors of one class vote on where they lie: those of the same field of an annotation's entry
// whose paths are equal up to numbers ("decoder.layers.*.mlp", `value`, slot 0), of all steps,
// micro-batches and calls. A parameter, its gradient and its moments are of one field.
//
// Every tensor votes for all placements that its bytes allow; that with most votes wins, of several
// the simplest. A constant tensor allows many and so follows the others of its class.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "analysis/infer/fits.h"

#include <ttrace/tensor_id.h>

#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace ttrace {

// The class of a tensor.
struct PlacementClass {
  std::string pattern;  // path, numbers replaced by `*`
  std::string field;    // key of an annotation's entry: "value", "grad", "inputs", ...
  int slot = 0;

  auto operator<=>(const PlacementClass&) const = default;
};

// Empty field: such a tensor has no placement (scalars, collectives).
[[nodiscard]] PlacementClass placement_class(const TensorId& id);

struct Election {
  std::string dims;  // of the winner
  std::string region;
  std::size_t votes = 0;    // for it
  std::size_t members = 0;  // that have a placement at all
  std::size_t tied = 0;     // placements with as many votes, the winner included
  std::string sizes;        // of its first member
};

using Elections = std::map<PlacementClass, Election>;
using Voters = std::map<PlacementClass, std::vector<const TensorFits*>>;

// If several placements fit a class, the vote prefers those that are cut like a related tensor: a
// gradient like its tensor, and the other way round. Next it prefers those that most tensors of
// these sizes have; this proves nothing, so they count as tied. Classes without any placement are
// left out.
[[nodiscard]] Elections elect(const Voters& voters);

}  // namespace ttrace
