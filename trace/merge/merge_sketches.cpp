#include "trace/merge/merge_sketches.h"

#include "trace/file/rank_file.h"
#include "trace/merge/contradictions.h"
#include "trace/merge/part_findings.h"
#include "trace/merge/parts.h"
#include "trace/place/boxes.h"
#include "trace/place/coverage.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// What several ranks hold alike.
struct Holding {
  std::vector<const Shard*> shards;  // ascending ranks, at least one
  Sketch sketch;                     // of the first

  [[nodiscard]] const Placement& placement() const { return shards.front()->record->placement; }
};

// Of a record that has one, or bytes of which it can be made.
Sketch sketch_of(const Shard& shard) {
  const Record& record = *shard.record;
  return record.sketch ? *shard.file->sketch(record)
                       : sketch_of(record.type, shard.bytes, record.placement);
}

bool hold_the_same(const Placement& left, const Placement& right) {
  return left.partial_index == right.partial_index && left.flat == right.flat &&
         left.dims == right.dims;
}

std::vector<std::vector<DimPlacement>> boxes_of(const Placement& placement) {
  return placement.flat ? boxes_of(placement.dims, *placement.flat)
                        : std::vector<std::vector<DimPlacement>>{placement.dims};
}

// "[0:64, 3]", or several of them.
std::string region_text(const Placement& placement) {
  std::string text;
  for (const std::vector<DimPlacement>& box : boxes_of(placement)) {
    text += (text.empty() ? "" : " ") + to_string(region_of(box));
  }
  return text;
}

// Replicas whose digests differ.
void find_disagreement(const Holding& holding, std::vector<MergeFinding>& findings) {
  MergeFinding finding{MergeDefect::kReplicasDisagree, {holding.shards.front()->rank}, "", 0.0};
  double distance = 0.0;
  for (std::size_t i = 1; i < holding.shards.size(); ++i) {
    const Sketch other = sketch_of(*holding.shards[i]);
    if (!(other.digest == holding.sketch.digest)) {
      finding.ranks.push_back(holding.shards[i]->rank);
      distance = std::max(distance, std::sqrt(squared_distance(holding.sketch, other)));
    }
  }
  if (finding.ranks.size() == 1) {
    return;
  }
  const Placement& placement = holding.placement();
  finding.message = addend_prefix(placement.partial_index, placement) +
                    rank_list({finding.ranks.begin() + 1, finding.ranks.end()}) + " and " +
                    rank_list({finding.ranks.front()}) + " hold different values in " +
                    region_text(placement) + ": their digests differ";
  finding.difference = distance;
  findings.push_back(std::move(finding));
}

std::vector<Holding> holdings_of(std::span<const Shard> shards) {
  std::vector<Holding> holdings;
  for (const Shard& shard : shards) {
    const auto known = std::ranges::find_if(holdings, [&](const Holding& holding) {
      return hold_the_same(holding.placement(), shard.record->placement);
    });
    if (known == holdings.end()) {
      holdings.push_back({{&shard}, sketch_of(shard)});
    } else {
      known->shards.push_back(&shard);
    }
  }
  return holdings;
}

// Gaps, overlaps and missing addends, and which rows are there.
void find_uncovered(std::span<const Shard> shards,
                    std::span<const Holding> holdings,
                    MergeResult& result) {
  Copies copies;
  for (const Holding& holding : holdings) {
    std::vector<int> ranks;
    for (const Shard* const shard : holding.shards) {
      ranks.push_back(shard->rank);
    }
    for (std::vector<DimPlacement>& box : boxes_of(holding.placement())) {
      Copy copy;
      copy.ranks = ranks;
      copy.dims = copies.dims.emplace_back(std::move(box));
      copy.partial_index = holding.placement().partial_index;
      copies.list.push_back(std::move(copy));
    }
  }
  const Placement& placement = shards.front().record->placement;
  const Addends addends = group_by_region(shards, copies);
  const std::optional<std::size_t> sparse = sparse_dim(placement);
  const Region space = space_of(result.shape, sparse, addends);
  if (sparse) {
    result.held = HeldRows{*sparse, space[*sparse]};
  }
  find_missing_addends(addends, placement, result.findings);
  for (const auto& [index, parts] : addends) {
    find_gaps_and_overlaps(parts, space, addend_prefix(index, placement), result.findings);
  }
}

Sketch sum_of(std::span<Holding> holdings) {
  std::map<int, Sketch> addends;
  for (Holding& holding : holdings) {
    const int index = holding.placement().partial_index;
    const auto [known, is_new] = addends.try_emplace(index);
    if (is_new) {
      known->second = std::move(holding.sketch);
    } else {
      add_shard(holding.sketch, known->second);
    }
  }
  Sketch sum = std::move(addends.begin()->second);
  for (auto addend = std::next(addends.begin()); addend != addends.end(); ++addend) {
    add_addend(addend->second, sum);
  }
  return sum;
}

}  // namespace

MergeResult merge_sketches(std::span<const Shard> shards) {
  for (const Shard& shard : shards) {
    validate(shard.record->placement);
  }
  MergeResult result;
  result.type = shards.front().record->type;
  result.shape = shards.front().record->placement.logical_shape();
  result.findings = find_contradictions(shards);
  if (!result.findings.empty()) {
    return result;
  }
  std::vector<Holding> holdings = holdings_of(shards);
  find_uncovered(shards, holdings, result);
  const bool tiles = result.findings.empty();
  for (const Holding& holding : holdings) {
    find_disagreement(holding, result.findings);
  }
  if (tiles) {
    result.sketch = sum_of(holdings);
  }
  return result;
}

}  // namespace ttrace
