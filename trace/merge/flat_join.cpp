#include "trace/merge/flat_join.h"

#include "trace/file/record.h"
#include "trace/place/boxes.h"
#include "trace/place/coverage.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace ttrace {
namespace {

// Pairs of ranks that a message lists.
constexpr std::size_t kMostPairs = 4;

// Two ranks that disagree where their ranges overlap.
struct Conflict {
  int first = 0;
  int second = 0;
  FlatRange range;
  Differences differences;
};

class Join {
 public:
  Join(std::span<const Shard* const> shards, Copies& copies)
      : placement_(shards.front()->record->placement), copies_(copies) {
    const auto scale = [](const Shard* shard) { return shard->record->placement.scale; };
    in_double_ = std::any_of(shards.begin(), shards.end(), [&](const Shard* shard) {
      return scale(shard) != scale(shards.front());
    });
    type_ = in_double_ ? ElementType::kF64 : shards.front()->record->type;
    scale_ = in_double_ ? 1.0 : placement_.scale;
    buffer_.resize(to_bytes(local_elements(placement_.dims), type_));
    for (const Shard* const shard : shards) {
      if (shard->record->placement.flat->count > 0) {
        add(*shard);
      }
    }
  }

  void finish(const std::string& prefix) {
    report(prefix);
    std::vector<std::byte>& buffer = copies_.buffers.emplace_back(std::move(buffer_));
    for (auto owned = owners_.begin(); owned != owners_.end();) {
      FlatRange range{owned->first, 0};
      std::vector<int> ranks;
      for (; owned != owners_.end() && owned->first == range.first + range.count; ++owned) {
        range.count = owned->second.end - range.first;
        ranks.push_back(owned->second.rank);
      }
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      for (std::vector<DimPlacement>& box : boxes_of(placement_.dims, range)) {
        const auto& dims = copies_.dims.emplace_back(std::move(box));
        copies_.list.push_back(
            {ranks, dims, placement_.partial_index, type_, scale_, buffer, &buffer});
      }
    }
  }

 private:
  // Local elements up to `end`, and whose value they have.
  struct Owned {
    std::int64_t end = 0;
    int rank = 0;
  };

  void add(const Shard& shard) {
    const Record& record = *shard.record;
    std::vector<double> scaled;
    std::span<const std::byte> values = shard.bytes;
    if (in_double_) {
      scaled.resize(static_cast<std::size_t>(record.placement.flat->count));
      to_double(record.type, shard.bytes.data(), std::ssize(scaled), scaled.data());
      for (double& value : scaled) {
        value *= record.placement.scale;
      }
      values = std::as_bytes(std::span(scaled));
    }
    const std::int64_t begin = record.placement.flat->first;
    const std::int64_t end = begin + record.placement.flat->count;
    const auto value_at = [&](std::int64_t element) {
      return values.data() + to_bytes(element - begin, type_);
    };
    std::vector<Interval> fresh;
    std::int64_t at = begin;
    auto owned = owners_.upper_bound(begin);
    if (owned != owners_.begin() && std::prev(owned)->second.end > begin) {
      --owned;
    }
    for (; owned != owners_.end() && owned->first < end; ++owned) {
      if (owned->first > at) {
        fresh.push_back({at, owned->first});
      }
      const Interval common{std::max(at, owned->first), std::min(end, owned->second.end)};
      check(common, value_at(common.begin), {owned->second.rank, shard.rank});
      at = common.end;
    }
    fresh.push_back({at, end});
    for (const Interval& interval : fresh) {
      if (interval.begin < interval.end) {
        std::memcpy(buffer_.data() + to_bytes(interval.begin, type_),
                    value_at(interval.begin),
                    to_bytes(interval.end - interval.begin, type_));
        owners_[interval.begin] = {interval.end, shard.rank};
      }
    }
  }

  // Padding may differ.
  void check(Interval local, const std::byte* values, std::pair<int, int> ranks) {
    const FlatRange range{local.begin, local.end - local.begin};
    const std::byte* const there = buffer_.data() + to_bytes(local.begin, type_);
    if (std::memcmp(there, values, to_bytes(range.count, type_)) == 0) {
      return;
    }
    Conflict conflict{ranks.first, ranks.second, range, {}};
    for_each_run(placement_.dims, range, [&](Offsets offsets, std::int64_t length) {
      const std::size_t skipped = to_bytes(offsets.local - local.begin, type_);
      add_differences(
          {{offsets.logical, offsets.logical + length}, there + skipped, values + skipped},
          type_,
          scale_,
          conflict.differences);
    });
    if (conflict.differences.count > 0) {
      conflicts_.push_back(std::move(conflict));
    }
  }

  void report(const std::string& prefix) {
    if (conflicts_.empty()) {
      return;
    }
    const Conflict& shown = conflicts_.front();
    std::string region;
    std::int64_t elements = 0;
    for (const std::vector<DimPlacement>& box : boxes_of(placement_.dims, shown.range)) {
      region += (region.empty() ? "" : " ") + to_string(region_of(box));
      elements += element_count(region_of(box));
    }
    MergeFinding finding{MergeDefect::kReplicasDisagree, {}, "", 0.0};
    std::string others;
    for (std::size_t i = 0; i < conflicts_.size(); ++i) {
      const Conflict& conflict = conflicts_[i];
      finding.ranks.insert(finding.ranks.end(), {conflict.first, conflict.second});
      finding.difference = std::max(finding.difference, conflict.differences.largest);
      if (i > 0 && i <= kMostPairs) {
        others += (i == 1 ? "; so do ranks " : ", ") + std::to_string(conflict.first) + " and " +
                  std::to_string(conflict.second);
      }
    }
    if (conflicts_.size() > kMostPairs + 1) {
      others += " and " + std::to_string(conflicts_.size() - kMostPairs - 1) + " more pairs";
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.ranks.erase(std::unique(finding.ranks.begin(), finding.ranks.end()),
                        finding.ranks.end());
    finding.message = prefix + rank_list({shown.first, shown.second}) +
                      " hold different values in " + region + ": " +
                      differences_text(shown.differences,
                                       elements,
                                       {shown.first, shown.second},
                                       placement_.logical_shape(),
                                       finding.difference) +
                      others;
    copies_.disagreements.push_back(std::move(finding));
  }

  const Placement& placement_;
  Copies& copies_;
  bool in_double_ = false;
  ElementType type_ = ElementType::kF32;
  double scale_ = 1.0;
  std::vector<std::byte> buffer_;
  std::map<std::int64_t, Owned> owners_;  // by first element; they do not overlap
  std::vector<Conflict> conflicts_;
};

}  // namespace

void join_flat(std::span<const Shard* const> shards, const std::string& prefix, Copies& copies) {
  Join(shards, copies).finish(prefix);
}

}  // namespace ttrace
