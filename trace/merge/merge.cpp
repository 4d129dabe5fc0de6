#include "trace/merge/merge.h"

#include "trace/merge/copies.h"
#include "trace/merge/flat_join.h"
#include "trace/place/boxes.h"
#include "trace/place/coverage.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// Gaps and overlaps that a message lists one by one.
constexpr std::size_t kMostListed = 4;

// The copies of one region of one addend; that of the lowest rank first.
struct Part {
  Region region;
  std::vector<const Copy*> copies;
};

// By partial index.
using Addends = std::map<int, std::vector<Part>>;

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

bool has_shape(const Placement& placement, std::span<const std::int64_t> shape) {
  if (placement.flat) {
    return shape.size() == 1 && shape.front() == placement.flat->count;
  }
  return std::equal(
      placement.dims.begin(),
      placement.dims.end(),
      shape.begin(),
      shape.end(),
      [](const DimPlacement& dim, std::int64_t size) { return dim.local_size == size; });
}

void check_record(const Shard& shard) {
  const Record& record = *shard.record;
  TTRACE_CHECK(has_shape(record.placement, record.shape),
               FormatError,
               to_string(record.id),
               " of rank ",
               shard.rank,
               " has the shape ",
               list_text(record.shape),
               " but a placement for ",
               list_text(record.placement.local_shape()));
  const std::size_t expected = to_bytes(element_count(record.shape), record.type);
  TTRACE_CHECK(shard.bytes.size() == expected,
               FormatError,
               to_string(record.id),
               " of rank ",
               shard.rank,
               " has ",
               shard.bytes.size(),
               " bytes where its shape ",
               list_text(record.shape),
               " of ",
               name_of(record.type),
               " needs ",
               expected);
  if (!record.placement.is_whole()) {
    validate(record.placement);
  }
}

std::optional<std::size_t> sparse_dim(const Placement& placement) {
  for (std::size_t dim = 0; dim < placement.dims.size(); ++dim) {
    if (placement.dims[dim].sparse) {
      return dim;
    }
  }
  return std::nullopt;
}

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
  finding.message = std::string(subject) + " is not the same everywhere: " + claims;
  findings.push_back(std::move(finding));
}

// "none", "0".
std::string sparse_text(const Placement& placement) {
  const std::optional<std::size_t> dim = sparse_dim(placement);
  return dim ? std::to_string(*dim) : "none";
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

// "addend 1 of 2 over tp: ", or nothing where nothing is summed.
std::string addend_prefix(int partial_index, const Placement& placement) {
  if (placement.partial_count == 1) {
    return "";
  }
  return "addend " + std::to_string(partial_index) + " of " +
         std::to_string(placement.partial_count) +
         (placement.partial_over.empty() ? "" : " over " + placement.partial_over) + ": ";
}

// Flat ranges of one local tensor are joined; all else is a copy as it is. Ordered by lowest rank.
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

// Copies that hold nothing but padding add no part.
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

// What the parts of every addend must tile: all of the tensor, but of a sparse dimension what is
// held of any addend.
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

void find_missing_addends(const Addends& addends,
                          const Placement& placement,
                          std::vector<MergeFinding>& findings) {
  std::string missing;
  std::size_t count = 0;
  for (int index = 0; index < placement.partial_count; ++index) {
    if (!addends.contains(index)) {
      missing += (missing.empty() ? "" : ",") + std::to_string(index);
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  MergeFinding finding{MergeDefect::kAddendsMissing, {}, "", 0.0};
  for (const auto& [index, parts] : addends) {
    const std::vector<int> ranks = ranks_of(parts);
    finding.ranks.insert(finding.ranks.end(), ranks.begin(), ranks.end());
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.message = (count == 1 ? "addend " : "addends ") + missing + " of " +
                    std::to_string(placement.partial_count) +
                    (placement.partial_over.empty() ? "" : " over " + placement.partial_over) +
                    (count == 1 ? " is" : " are") + " missing (counted from 0)" +
                    (finding.ranks.empty() ? "" : "; the rest is on " + rank_list(finding.ranks));
  findings.push_back(std::move(finding));
}

void find_overlap(const std::vector<Part>& parts,
                  const std::vector<Overlap>& overlaps,
                  const std::string& prefix,
                  std::vector<MergeFinding>& findings) {
  std::vector<Part> involved;
  std::string list;
  for (std::size_t i = 0; i < overlaps.size(); ++i) {
    const Part& first = parts[overlaps[i].first];
    const Part& second = parts[overlaps[i].second];
    involved.push_back(first);
    involved.push_back(second);
    if (i < kMostListed) {
      list += (i == 0 ? "" : "; ") + to_string(overlaps[i].common) + " is held by " +
              rank_list(ranks_of(first.copies)) + " as part of " + to_string(first.region) +
              " and by " + rank_list(ranks_of(second.copies)) + " as part of " +
              to_string(second.region);
    } else if (i == kMostListed) {
      list += "; and " + std::to_string(overlaps.size() - kMostListed) + " more";
    }
  }
  std::vector<int> ranks = ranks_of(std::span<const Part>(involved));
  findings.push_back({MergeDefect::kOverlap, std::move(ranks), prefix + list, 0.0});
}

void find_gap(const std::vector<Part>& parts,
              const std::vector<Region>& gaps,
              const std::string& prefix,
              std::vector<MergeFinding>& findings) {
  std::string list;
  for (std::size_t i = 0; i < gaps.size() && i <= kMostListed; ++i) {
    list += (i == 0 ? "" : " ") +
            (i < kMostListed ? to_string(gaps[i])
                             : "and " + std::to_string(gaps.size() - kMostListed) + " more");
  }
  std::vector<int> ranks = ranks_of(parts);
  const std::string others = ranks.empty() ? "" : "; the rest is on " + rank_list(ranks);
  findings.push_back(
      {MergeDefect::kGap, std::move(ranks), prefix + "no rank holds " + list + others, 0.0});
}

void find_disagreement(const Part& part,
                       const std::string& prefix,
                       std::vector<MergeFinding>& findings) {
  const Copy& lowest = *part.copies.front();
  std::vector<std::vector<const Copy*>> groups{{&lowest}};
  Differences shown;  // between the first two groups
  double largest = 0.0;
  for (std::size_t i = 1; i < part.copies.size(); ++i) {
    const Copy* const copy = part.copies[i];
    const auto group = std::find_if(groups.begin(), groups.end(), [copy](const auto& members) {
      return compare_copies(*members.front(), *copy).count == 0;
    });
    if (group != groups.end()) {
      group->push_back(copy);
      continue;
    }
    const Differences differences = compare_copies(lowest, *copy);
    largest = std::max(largest, differences.largest);
    if (groups.size() == 1) {
      shown = differences;
    }
    groups.push_back({copy});
  }
  if (groups.size() == 1) {
    return;
  }
  MergeFinding finding{MergeDefect::kReplicasDisagree, lowest.ranks, prefix, largest};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<int> ranks = ranks_of(groups[i]);
    finding.message += (i == 0 ? "" : i + 1 == groups.size() ? " and " : ", ") + rank_list(ranks);
    if (i > 0) {
      finding.ranks.insert(finding.ranks.end(), ranks.begin(), ranks.end());
    }
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  std::vector<std::int64_t> shape;
  for (const DimPlacement& dim : lowest.dims) {
    shape.push_back(dim.logical_size);
  }
  finding.message += " hold different values" +
                     (shape.empty() ? "" : " in " + to_string(part.region)) + ": " +
                     differences_text(shown,
                                      element_count(part.region),
                                      {lowest.ranks.front(), groups[1].front()->ranks.front()},
                                      shape,
                                      largest);
  findings.push_back(std::move(finding));
}

// Requires: parts that tile the tensor, or what is held of it, in every addend. The lowest rank's
// copy of each counts.
// `type` is that of the records.
void assemble(const Addends& addends, ElementType type, std::int64_t count, MergeResult& result) {
  bool in_double = addends.size() > 1;
  for (const auto& [index, parts] : addends) {
    in_double = in_double || std::any_of(parts.begin(), parts.end(), [type](const Part& part) {
                  return part.copies.front()->scale != 1.0 || part.copies.front()->type != type;
                });
  }
  const std::vector<Part>& parts_of_first = addends.begin()->second;
  if (!in_double && !parts_of_first.empty()) {
    const Copy& first = *parts_of_first.front().copies.front();
    if (is_identity(first.dims)) {
      result.bytes = first.bytes;
      if (first.joined != nullptr) {
        result.storage = std::move(*first.joined);
      }
      return;
    }
  }
  result.type = in_double ? ElementType::kF64 : type;
  result.storage.resize(to_bytes(count, result.type));
  result.bytes = result.storage;
  for (const auto& [index, parts] : addends) {
    for (const Part& part : parts) {
      const Copy& copy = *part.copies.front();
      if (in_double) {
        accumulate(copy, index == 0, reinterpret_cast<double*>(result.storage.data()));
      } else {
        scatter(copy, result.storage.data());
      }
    }
  }
}

}  // namespace

std::string_view name_of(MergeDefect defect) {
  switch (defect) {
    case MergeDefect::kShapesContradict:
      return "shapes_contradict";
    case MergeDefect::kGap:
      return "gap";
    case MergeDefect::kOverlap:
      return "overlap";
    case MergeDefect::kReplicasDisagree:
      return "replicas_disagree";
    case MergeDefect::kAddendsMissing:
      return "addends_missing";
  }
  TTRACE_THROW(InternalError, "merge defect ", static_cast<int>(defect), " has no name");
}

MergeResult merge(std::span<const Shard> shards) {
  TTRACE_CHECK(!shards.empty(), UsageError, "there is nothing to merge; pass at least one shard");
  std::for_each(shards.begin(), shards.end(), check_record);
  const Record& first = *shards.front().record;
  MergeResult result;
  result.type = first.type;
  result.shape = first.placement.logical_shape();
  if (shards.size() == 1 && first.placement.is_whole()) {
    result.bytes = shards.front().bytes;  // of most records; the rest would find nothing to say
    return result;
  }
  result.findings = find_contradictions(shards);
  const std::int64_t count = element_count(result.shape);
  if (!result.findings.empty() || count == 0) {
    return result;
  }
  Copies copies = copies_of(shards);
  const Addends addends = group_by_region(shards, copies);
  const std::optional<std::size_t> sparse = sparse_dim(first.placement);
  const Region space = space_of(result.shape, sparse, addends);
  if (sparse) {
    result.held = HeldRows{*sparse, space[*sparse]};
  }
  find_missing_addends(addends, first.placement, result.findings);
  for (const auto& [index, parts] : addends) {
    const std::string prefix = addend_prefix(index, first.placement);
    std::vector<Region> regions;
    for (const Part& part : parts) {
      regions.push_back(part.region);
    }
    const Coverage coverage = cover(space, regions);
    if (!coverage.overlaps.empty()) {
      find_overlap(parts, coverage.overlaps, prefix, result.findings);
    }
    if (!coverage.gaps.empty()) {
      find_gap(parts, coverage.gaps, prefix, result.findings);
    }
  }
  const bool tiles = result.findings.empty();
  result.findings.insert(
      result.findings.end(), copies.disagreements.begin(), copies.disagreements.end());
  for (const auto& [index, parts] : addends) {
    for (const Part& part : parts) {
      find_disagreement(part, addend_prefix(index, first.placement), result.findings);
    }
  }
  if (tiles) {
    assemble(addends, first.type, count, result);
  }
  return result;
}

namespace {

// Zero outside `rows` of dimension `dim`.
void keep_rows(std::size_t dim, const IndexSet& rows, MergeResult& result) {
  const IndexSet all{{0, result.shape[dim]}};
  const IndexSet others = difference(result.held ? result.held->rows : all, rows);
  if (others.empty()) {
    return;
  }
  if (result.storage.empty()) {
    result.storage.assign(result.bytes.begin(), result.bytes.end());
    result.bytes = result.storage;
  }
  std::int64_t inner = 1;
  for (std::size_t i = dim + 1; i < result.shape.size(); ++i) {
    inner *= result.shape[i];
  }
  const std::size_t row = to_bytes(inner, result.type);
  const std::size_t block = row * static_cast<std::size_t>(result.shape[dim]);
  for (std::size_t start = 0; start < result.storage.size(); start += block) {
    for (const Interval& interval : others) {
      std::memset(result.storage.data() + start + row * static_cast<std::size_t>(interval.begin),
                  0,
                  row * static_cast<std::size_t>(interval.end - interval.begin));
    }
  }
}

}  // namespace

void keep_common_rows(MergeResult& left, MergeResult& right) {
  if (left.held == right.held || !left.has_tensor() || !right.has_tensor()) {
    return;
  }
  const std::size_t dim = left.held ? left.held->dim : right.held->dim;
  const IndexSet all{{0, left.shape[dim]}};
  const IndexSet common =
      intersection(left.held ? left.held->rows : all, right.held ? right.held->rows : all);
  keep_rows(dim, common, left);
  keep_rows(dim, common, right);
}

void extract(const Placement& placement, ElementType type, const void* logical, void* target) {
  TTRACE_CHECK(
      placement.partial_count == 1 && placement.scale == 1.0,
      UsageError,
      "a tensor of ",
      placement.partial_count,
      " addends and scale ",
      placement.scale,
      " cannot be cut out of its logical one; only unscaled shards that are not summed can");
  const std::size_t bytes = to_bytes(element_count(placement.local_shape()), type);
  if (bytes == 0) {
    return;  // `target` may be null
  }
  const auto* const source = static_cast<const std::byte*>(logical);
  auto* const local = static_cast<std::byte*>(target);
  std::memset(local, 0, bytes);
  const std::int64_t first = placement.flat ? placement.flat->first : 0;
  const auto copy = [&](Offsets offsets, std::int64_t length) {
    std::memcpy(local + to_bytes(offsets.local - first, type),
                source + to_bytes(offsets.logical, type),
                to_bytes(length, type));
  };
  if (placement.flat) {
    for_each_run(placement.dims, *placement.flat, copy);
  } else {
    for_each_run(placement.dims, copy);
  }
}

}  // namespace ttrace
