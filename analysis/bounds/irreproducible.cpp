#include "analysis/bounds/irreproducible.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <cmath>

namespace ttrace {

Irreproducible::Irreproducible(const NoisePass& self_check, std::span<const Match> matches)
    : compared_(self_check.rows.size()) {
  for (const NoiseRow& row : self_check.rows) {
    // Squares of tiny differences may vanish.
    if (row.max_abs > 0.0 || row.nonfinite > 0) {
      rows_.emplace(row.id, row);
    }
  }
  for (const Match& match : matches) {
    const NoiseRow* const row = match.reference.empty() ? nullptr : find(match.id);
    if (row != nullptr) {
      const double norm = match.reference.front().record->norm;
      first_ = match.id;
      place_ = {match.id.step, match.order};
      error_ = norm > 0.0 ? std::sqrt(row->sum_squared) / norm : 0.0;
      break;
    }
  }
}

const NoiseRow* Irreproducible::find(const TensorId& id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

bool Irreproducible::reaches(const Match& match) const {
  return first_ && std::pair{match.id.step, match.order} >= place_;
}

std::string Irreproducible::sentence() const {
  if (rows_.empty()) {
    return fmt::format("self-check: a second run of the reference reproduced all of {}",
                       counted(compared_, "tensor"));
  }
  return fmt::format(
      "self-check: a second run of the reference did not reproduce {} of {}{}; bounds allow for "
      "that, and from there on copies and recomputed values need not be equal in every bit",
      rows_.size(),
      counted(compared_, "tensor"),
      first_ ? fmt::format("; the first is {}, off by {} of its norm",
                           to_string(*first_),
                           short_number(error_))
             : "");
}

}  // namespace ttrace
