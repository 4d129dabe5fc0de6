#include "analysis/checks/dealt_rows.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using Shape = std::vector<std::int64_t>;

// Whether the parts have together what the whole has of one dimension, and the same of all others.
bool add_up(const Shape& whole, std::span<const Shard> parts) {
  std::size_t dims = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::int64_t held = 0;
    bool is_whole = true;
    for (const Shard& part : parts) {
      held += part.record->shape[i];
      is_whole = is_whole && part.record->shape[i] == whole[i];
    }
    if (!is_whole && held != whole[i]) {
      return false;
    }
    dims += is_whole ? 0 : 1;
  }
  return dims == 1;
}

}  // namespace

bool has_dealt_rows(const Match& match) {
  if (match.reference.size() != 1 || match.candidate.size() < 2) {
    return false;
  }
  const Shape& whole = match.reference.front().record->shape;
  const Shape guess = match.candidate.front().record->placement.logical_shape();
  const bool are_undeclared = std::ranges::all_of(match.candidate, [&](const Shard& part) {
    return part.record->undeclared && part.record->shape.size() == whole.size();
  });
  const bool contradict = std::ranges::any_of(match.candidate, [&](const Shard& part) {
    return part.record->placement.logical_shape() != guess;
  });
  return are_undeclared && contradict && add_up(whole, match.candidate);
}

std::optional<UnseenPart> unseen_rows(std::span<const Match> matches) {
  const auto count = static_cast<std::size_t>(std::ranges::count_if(matches, has_dealt_rows));
  if (count == 0) {
    return std::nullopt;
  }
  const Match& first = *std::ranges::find_if(matches, has_dealt_rows);
  return UnseenPart{
      NotSeenKind::kSamples,
      std::nullopt,
      fmt::format(
          "{} not compared, because each rank holds another number of rows, and nobody says "
          "which of the reference's they are; the first is {}",
          count == 1 ? "1 tensor was" : fmt::format("{} tensors were", count),
          to_string(first.id))};
}

}  // namespace ttrace
