#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ttrace {
namespace {

bool is_constant(const Shard& shard) {
  const std::vector<double> values = local_values(shard).data;
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to{}) == values.end();
}

bool same_bytes(const Shard& left, const Shard& right) {
  return left.record->digest == right.record->digest && left.record->type == right.record->type &&
         left.record->shape == right.record->shape;
}

// What a rank's part is off from the reference's.
double part_error(const Shard& shard, const Values& reference) {
  const Values held = local_values(shard);
  return distance(held, {held.shape, values_at(reference, shard)});
}

// Parts of one tensor that are equal where the reference's are not.
bool is_duplicate(const Shard& left, const Shard& right, const Values& reference) {
  const Placement& one = left.record->placement;
  const Placement& two = right.record->placement;
  return one.partial_count == 1 && two.partial_count == 1 && one != two &&
         same_bytes(left, right) && !is_constant(left) &&
         values_at(reference, left) != values_at(reference, right);
}

}  // namespace

std::optional<Hypothesis> find_duplicated_part(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const std::vector<Shard>& shards = evidence.match().candidate;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::vector<int> ranks = {shards[i].rank};
    double nearest = part_error(shards[i], sides->reference);
    for (std::size_t j = i + 1; j < shards.size(); ++j) {
      if (is_duplicate(shards[i], shards[j], sides->reference)) {
        ranks.push_back(shards[j].rank);
        nearest = std::min(nearest, part_error(shards[j], sides->reference));
      }
    }
    if (ranks.size() > 1) {
      return Hypothesis{
          .signature = Signature::kDuplicatedBlock,
          .sentence = fmt::format("{} hold different parts of it, equal in every bit; in the "
                                  "reference these parts differ: one rank's data, seed or shard is "
                                  "on all of them",
                                  ranks_text(ranks)),
          .named = {.ranks = ranks},
          .error = sides->error,
          // What the part is that they all hold is explained where one of them should hold it.
          .residual = std::min(nearest, sides->error),
          .bits = bits_of_choice(static_cast<double>(ranks.size()))};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
