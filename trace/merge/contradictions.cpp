#include "trace/merge/contradictions.h"

#include "trace/merge/copies.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

// A finding where the shards do not all say the same. `ranks` are the lowest one and those that
// contradict it.
void find_contradiction(std::span<const Shard> shards,
                        std::string_view subject,
                        const std::function<std::string(const Record&)>& claim,
                        std::vector<MergeFinding>& findings) {
  std::map<std::string, std::vector<int>> ranks_by_claim;
  MergeFinding finding{MergeDefect::kShapesContradict, {shards.front().rank}, "", 0.0};
  const std::string first_claim = claim(*shards.front().record);
  for (const Shard& shard : shards) {
    const std::string text = claim(*shard.record);
    ranks_by_claim[text].push_back(shard.rank);
    if (text != first_claim) {
      finding.ranks.push_back(shard.rank);
    }
  }
  if (ranks_by_claim.size() == 1) {
    return;
  }
  std::string claims;
  for (const auto& [text, ranks] : ranks_by_claim) {
    claims += (claims.empty() ? "" : ", ") + text + " on " + rank_list(ranks);
  }
  finding.message = std::string(subject) + " differs between ranks: " + claims;
  findings.push_back(std::move(finding));
}

// "none", "0".
std::string sparse_text(const Placement& placement) {
  const std::optional<std::size_t> dim = sparse_dim(placement);
  return dim ? std::to_string(*dim) : "none";
}

}  // namespace

std::optional<std::size_t> sparse_dim(const Placement& placement) {
  for (std::size_t dim = 0; dim < placement.dims.size(); ++dim) {
    if (placement.dims[dim].sparse) {
      return dim;
    }
  }
  return std::nullopt;
}

std::vector<MergeFinding> find_contradictions(std::span<const Shard> shards) {
  std::vector<MergeFinding> findings;
  const Record& first = *shards.front().record;
  const std::vector<std::int64_t> shape = first.placement.logical_shape();
  const bool agree = std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    const Placement& placement = shard.record->placement;
    return shard.record->type == first.type && placement.logical_shape() == shape &&
           sparse_dim(placement) == sparse_dim(first.placement) &&
           placement.partial_count == first.placement.partial_count;
  });
  if (agree) {
    return findings;
  }
  find_contradiction(
      shards,
      "the logical shape",
      [](const Record& record) { return list_text(record.placement.logical_shape()); },
      findings);
  find_contradiction(
      shards,
      "the sparse dimension",
      [](const Record& record) { return sparse_text(record.placement); },
      findings);
  find_contradiction(
      shards,
      "the element type",
      [](const Record& record) { return std::string(name_of(record.type)); },
      findings);
  find_contradiction(
      shards,
      "the number of addends",
      [](const Record& record) { return std::to_string(record.placement.partial_count); },
      findings);
  return findings;
}

}  // namespace ttrace
