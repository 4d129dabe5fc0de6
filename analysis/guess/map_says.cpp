#include "analysis/guess/map_says.h"

#include <algorithm>
#include <string>

namespace ttrace {
namespace {

bool same_dims(const DimsPair* dims, const Arrangement& how) {
  if (dims == nullptr) {
    return how.is_same();
  }
  const std::string reference = to_string(dims->reference);
  const std::string candidate = to_string(dims->candidate);
  return how.is_same() ? reference == candidate
                       : reference == how.reference && candidate == how.candidate;
}

}  // namespace

bool says(const RenameMap& map, const GuessState& state, const Pairing& pairing) {
  for (const Names side : kBothNames) {
    for (const UnitNumber number : pairing.of(side)) {
      const Unit& unit = state.side(side).unit(number);
      const Counterparts found = map.find(side, unit.id);
      if (found.of(other(side)) != state.side(other(side)).ids(pairing.of(other(side))) ||
          (!pairing.is_one_sided() && found.of(side) != state.side(side).ids(pairing.of(side)))) {
        return false;
      }
      if (!pairing.is_one_sided() &&
          !same_dims(map.dims(found, unit.id.kind, side, unit.shape.size()), pairing.dims)) {
        return false;
      }
    }
  }
  return true;
}

bool leaves_open(const RenameMap& map, const GuessState& state, const OpenUnit& open) {
  const Counterparts found = map.find(open.side, state.side(open.side).unit(open.unit).id);
  return !found.of(other(open.side)).empty() &&
         std::ranges::none_of(found.of(other(open.side)), [&](const TensorId& id) {
           return state.side(other(open.side)).has(id);
         });
}

}  // namespace ttrace
