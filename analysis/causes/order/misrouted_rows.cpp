#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using Rows = std::set<std::int64_t>;

// The rows of the logical tensor that a shard has.
Rows rows_of(const Shard& shard) {
  Rows rows;
  const Placement& placement = shard.record->placement;
  if (!placement.dims.empty()) {
    for (const Segment& segment : placement.dims.front().segments) {
      for (std::int64_t i = 0; i < segment.extent; ++i) {
        rows.insert(segment.logical + i);
      }
    }
  }
  return rows;
}

Rows rows_of(const std::vector<Shard>& shards) {
  Rows rows;
  for (const Shard& shard : shards) {
    rows.merge(rows_of(shard));
  }
  return rows;
}

// "mlp.experts.", and what follows the number.
bool is_of_other_expert(const std::string& left, const std::string& right) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = left.find(kExperts);
  if (left == right || at == std::string::npos) {
    return false;
  }
  const std::size_t number = at + kExperts.size();
  const std::size_t end = left.find('.', number);
  const std::size_t other = right.find('.', number);
  return right.size() > number && left.compare(0, number, right, 0, number) == 0 &&
         end != std::string::npos && other != std::string::npos &&
         left.substr(end) == right.substr(other);
}

}  // namespace

std::optional<Hypothesis> find_misrouted_rows(const Evidence& evidence) {
  const Match& match = evidence.match();
  const Symptom symptom = evidence.finding().symptom();
  if ((symptom != Symptom::kRanksContradict && symptom != Symptom::kRowsDiffer &&
       symptom != Symptom::kOverlap) ||
      match.reference.empty()) {
    return std::nullopt;
  }
  const Rows right = rows_of(match.reference);
  for (const Shard& shard : match.candidate) {
    std::vector<std::int64_t> strange;
    for (const std::int64_t row : rows_of(shard)) {
      if (!right.contains(row)) {
        strange.push_back(row);
      }
    }
    if (strange.empty()) {
      continue;
    }
    for (const Match& other : evidence.matches()) {
      if (other.id.kind != match.id.kind || other.id.step != match.id.step ||
          other.id.microbatch != match.id.microbatch || other.id.slot != match.id.slot ||
          !is_of_other_expert(match.id.path, other.id.path)) {
        continue;
      }
      const Rows theirs = rows_of(other.reference);
      const auto there = std::count_if(
          strange.begin(), strange.end(), [&](std::int64_t row) { return theirs.contains(row); });
      if (there > 0) {
        return Hypothesis{
            .signature = Signature::kWrongOrder,
            .sentence = fmt::format(
                "rank {} has rows {} here, which the reference does not; {} of them are those of "
                "{}: tokens were given to experts by counts that belong to other rows",
                shard.rank,
                ranges_text(strange),
                there,
                to_string(other.id)),
            .named = {.ranks = {shard.rank}}};
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
