#include "trace/merge/parts.h"

#include <algorithm>
#include <utility>

namespace ttrace {

std::vector<int> ranks_of(std::span<const Copy* const> copies) {
  std::vector<int> ranks;
  for (const Copy* const copy : copies) {
    ranks.insert(ranks.end(), copy->ranks.begin(), copy->ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int> ranks_of(std::span<const Part> parts) {
  std::vector<const Copy*> copies;
  for (const Part& part : parts) {
    copies.insert(copies.end(), part.copies.begin(), part.copies.end());
  }
  return ranks_of(copies);
}

std::string addend_prefix(int partial_index, const Placement& placement) {
  if (placement.partial_count == 1) {
    return "";
  }
  return "addend " + std::to_string(partial_index) + " of " +
         std::to_string(placement.partial_count) +
         (placement.partial_over.empty() ? "" : " over " + placement.partial_over) + ": ";
}

Copies copies_of(std::span<const Shard> shards) {
  Copies copies;
  std::vector<std::vector<const Shard*>> flat;  // by partial index and dims
  for (const Shard& shard : shards) {
    const Placement& placement = shard.record->placement;
    if (!placement.flat) {
      copies.list.push_back({{shard.rank},
                             placement.dims,
                             placement.partial_index,
                             shard.record->type,
                             placement.scale,
                             shard.bytes});
      continue;
    }
    const auto group = std::find_if(flat.begin(), flat.end(), [&](const auto& members) {
      const Placement& other = members.front()->record->placement;
      return other.partial_index == placement.partial_index && other.dims == placement.dims;
    });
    (group == flat.end() ? flat.emplace_back() : *group).push_back(&shard);
  }
  for (const std::vector<const Shard*>& group : flat) {
    const Placement& placement = group.front()->record->placement;
    join_flat(group, addend_prefix(placement.partial_index, placement), copies);
  }
  std::stable_sort(copies.list.begin(), copies.list.end(), [](const Copy& left, const Copy& right) {
    return left.ranks.front() < right.ranks.front();
  });
  return copies;
}

Addends group_by_region(std::span<const Shard> shards, const Copies& copies) {
  Addends addends;
  for (const Shard& shard : shards) {
    addends[shard.record->placement.partial_index];  // it is there, even where it is empty
  }
  std::map<std::pair<int, Region>, std::size_t> number_of;
  for (const Copy& copy : copies.list) {
    Region region = region_of(copy.dims);
    if (element_count(region) == 0) {
      continue;
    }
    std::vector<Part>& parts = addends[copy.partial_index];
    const auto [entry, is_new] = number_of.try_emplace({copy.partial_index, region}, parts.size());
    if (is_new) {
      parts.push_back({std::move(region), {}});
    }
    parts[entry->second].copies.push_back(&copy);
  }
  return addends;
}

Region space_of(std::span<const std::int64_t> shape,
                std::optional<std::size_t> sparse,
                const Addends& addends) {
  Region space;
  for (const std::int64_t size : shape) {
    space.push_back({{0, size}});
  }
  if (sparse) {
    std::vector<Interval> rows;
    for (const auto& [index, parts] : addends) {
      for (const Part& part : parts) {
        const IndexSet& held = part.region[*sparse];
        rows.insert(rows.end(), held.begin(), held.end());
      }
    }
    space[*sparse] = normalised(std::move(rows));
  }
  return space;
}

}  // namespace ttrace
