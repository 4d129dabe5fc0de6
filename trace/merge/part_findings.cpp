#include "trace/merge/part_findings.h"

#include <algorithm>
#include <span>
#include <utility>

namespace ttrace {
namespace {

// Gaps and overlaps that a message lists one by one.
constexpr std::size_t kMostListed = 4;

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

}  // namespace

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

void find_gaps_and_overlaps(const std::vector<Part>& parts,
                            const Region& space,
                            const std::string& prefix,
                            std::vector<MergeFinding>& findings) {
  std::vector<Region> regions;
  for (const Part& part : parts) {
    regions.push_back(part.region);
  }
  const Coverage coverage = cover(space, regions);
  if (!coverage.overlaps.empty()) {
    find_overlap(parts, coverage.overlaps, prefix, findings);
  }
  if (!coverage.gaps.empty()) {
    find_gap(parts, coverage.gaps, prefix, findings);
  }
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

}  // namespace ttrace
