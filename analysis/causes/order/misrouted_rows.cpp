#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using Rows = std::set<std::int64_t>;

// The rows of the logical tensor that shards have.
Rows rows_of(std::span<const Shard> shards) {
  Rows rows;
  for (const Shard& shard : shards) {
    const std::vector<DimPlacement>& dims = shard.record->placement.dims;
    for (const Segment& segment : dims.empty() ? std::vector<Segment>() : dims[0].segments) {
      for (std::int64_t i = 0; i < segment.extent; ++i) {
        rows.insert(segment.logical + i);
      }
    }
  }
  return rows;
}

// The rows of `left` that `right` has (or has not).
std::vector<std::int64_t> common(const Rows& left, const Rows& right, bool has) {
  std::vector<std::int64_t> rows;
  std::ranges::copy_if(
      left, std::back_inserter(rows), [&](std::int64_t row) { return right.contains(row) == has; });
  return rows;
}

}  // namespace

Hypotheses find_misrouted_rows(const Evidence& evidence) {
  const Match& match = evidence.match();
  const Symptom symptom = evidence.finding().symptom();
  const bool of_rows = symptom == Symptom::kRanksContradict || symptom == Symptom::kRowsDiffer ||
                       symptom == Symptom::kOverlap;
  const Rows right = rows_of(match.reference);
  Hypotheses found;
  for (const Shard& shard : match.candidate) {
    const auto strange = common(rows_of({&shard, 1}), right, false);
    if (!of_rows || match.reference.empty() || strange.empty()) {
      continue;
    }
    for (const Match& other : evidence.matches()) {
      TensorId same = other.id;
      same.path = match.id.path;
      if (same != match.id ||
          !evidence.vocabulary().differ_in_number(Role::kExperts, match.id.path, other.id.path)) {
        continue;
      }
      const auto theirs = common({strange.begin(), strange.end()}, rows_of(other.reference), true);
      if (!theirs.empty()) {
        found.push_back(
            {.signature = Signature::kWrongOrder,
             .sentence = fmt::format("rank {} has rows {} here, which the reference does not; {} "
                                     "of them are those of {}: tokens were given to experts by "
                                     "counts that belong to other rows",
                                     shard.rank,
                                     ranges_text(strange),
                                     theirs.size(),
                                     to_string(other.id)),
             .named = {.ranks = {shard.rank}}});
      }
    }
  }
  return found;
}

}  // namespace ttrace
