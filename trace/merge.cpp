#include "coverage.h"

#include <ttrace/error.h>
#include <ttrace/merge.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

namespace ttrace {
namespace {

// Elements converted at a time where values change type.
constexpr std::int64_t kConversionBlock = 1024;
// Gaps and overlaps that a message lists one by one.
constexpr std::size_t kMostListed = 4;

// The ranks that hold one region of one addend, ascending.
struct Part {
  Region region;
  std::vector<const Shard*> copies;
};

// By partial index.
using Addends = std::map<int, std::vector<Part>>;

bool is_identity(const DimPlacement& dim) {
  return dim.local_size == dim.logical_size && dim.segments.size() == 1 &&
         dim.segments.front().extent == dim.local_size;
}

// Offset of an outer index in the local and in the logical tensor.
struct Offsets {
  std::int64_t local = 0;
  std::int64_t logical = 0;
};

template <class Visit>
void visit_runs(std::span<const DimPlacement> dims,
                Offsets outer,
                std::int64_t inner,
                const Visit& visit) {
  const DimPlacement& dim = dims.front();
  const Offsets base{outer.local * dim.local_size, outer.logical * dim.logical_size};
  for (const Segment& segment : dim.segments) {
    const Offsets start{base.local + segment.local, base.logical + segment.logical};
    if (dims.size() == 1) {
      visit(Offsets{start.local * inner, start.logical * inner}, segment.extent * inner);
      continue;
    }
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      visit_runs(dims.subspan(1), {start.local + i, start.logical + i}, inner, visit);
    }
  }
}

// Calls `visit(offsets, length)` for runs of elements that are contiguous in the local and in the
// logical tensor and together are all that is not padding.
template <class Visit>
void for_each_run(const Placement& placement, const Visit& visit) {
  std::span<const DimPlacement> dims = placement.dims;
  std::int64_t inner = 1;
  while (!dims.empty() && is_identity(dims.back())) {
    inner *= dims.back().local_size;
    dims = dims.first(dims.size() - 1);
  }
  if (dims.empty()) {
    visit(Offsets{}, inner);
  } else {
    visit_runs(dims, {}, inner, visit);
  }
}

std::size_t to_bytes(std::int64_t elements, ElementType type) {
  return static_cast<std::size_t>(elements) * element_size(type);
}

// "rank 1", "ranks 0,2".
std::string text_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  }
  return text;
}

std::string text_of(std::span<const std::int64_t> numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + "]";
}

std::string index_text(std::int64_t offset, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = offset % shape[dim];
    offset /= shape[dim];
  }
  return text_of(index);
}

std::vector<int> ranks_of(std::span<const Part> parts) {
  std::vector<int> ranks;
  for (const Part& part : parts) {
    for (const Shard* copy : part.copies) {
      ranks.push_back(copy->rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool has_shape(const Placement& placement, std::span<const std::int64_t> shape) {
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
               text_of(record.shape),
               " but a placement for ",
               text_of(record.placement.local_shape()));
  const std::size_t expected = to_bytes(element_count(record.shape), record.type);
  TTRACE_CHECK(shard.bytes.size() == expected,
               FormatError,
               to_string(record.id),
               " of rank ",
               shard.rank,
               " has ",
               shard.bytes.size(),
               " bytes where its shape ",
               text_of(record.shape),
               " of ",
               name_of(record.type),
               " needs ",
               expected);
  if (!record.placement.is_whole()) {
    validate(record.placement);
  }
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
    claims += (claims.empty() ? "" : ", ") + text + " on " + text_of(ranks);
  }
  finding.message = std::string(subject) + " is not the same everywhere: " + claims;
  findings.push_back(std::move(finding));
}

std::vector<MergeFinding> find_contradictions(std::span<const Shard> shards) {
  std::vector<MergeFinding> findings;
  const Record& first = *shards.front().record;
  const std::vector<std::int64_t> shape = first.placement.logical_shape();
  const bool agree = std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    const Placement& placement = shard.record->placement;
    return shard.record->type == first.type && placement.logical_shape() == shape &&
           placement.partial_count == first.placement.partial_count;
  });
  if (agree) {
    return findings;
  }
  find_contradiction(
      shards,
      "the logical shape",
      [](const Record& record) {
        return text_of(std::span<const std::int64_t>(record.placement.logical_shape()));
      },
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

// Shards that hold nothing but padding add no part.
Addends group_shards(std::span<const Shard> shards) {
  Addends addends;
  std::map<std::pair<int, Region>, std::size_t> number_of;
  for (const Shard& shard : shards) {
    const int partial_index = shard.record->placement.partial_index;
    std::vector<Part>& parts = addends[partial_index];
    Region region = region_of(shard.record->placement);
    if (element_count(region) == 0) {
      continue;
    }
    const auto [entry, is_new] = number_of.try_emplace({partial_index, region}, parts.size());
    if (is_new) {
      parts.push_back({std::move(region), {}});
    }
    parts[entry->second].copies.push_back(&shard);
  }
  return addends;
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
                    (finding.ranks.empty() ? "" : "; the rest is on " + text_of(finding.ranks));
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
              text_of(ranks_of({&first, 1})) + " as part of " + to_string(first.region) +
              " and by " + text_of(ranks_of({&second, 1})) + " as part of " +
              to_string(second.region);
    } else if (i == kMostListed) {
      list += "; and " + std::to_string(overlaps.size() - kMostListed) + " more";
    }
  }
  std::vector<int> ranks = ranks_of(involved);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
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
  const std::string others = ranks.empty() ? "" : "; the rest is on " + text_of(ranks);
  findings.push_back(
      {MergeDefect::kGap, std::move(ranks), prefix + "no rank holds " + list + others, 0.0});
}

// What a copy holds, comparable with the other copies of its part. Where scales differ, `scaled`
// owns the logical values in double and `bytes` is empty.
struct CopyView {
  CopyView(const Shard& shard, bool in_double)
      : placement(&shard.record->placement),
        type(shard.record->type),
        scale(placement->scale),
        bytes(shard.bytes) {
    if (in_double) {
      scaled.resize(bytes.size() / element_size(type));
      to_double(type, bytes.data(), static_cast<std::int64_t>(scaled.size()), scaled.data());
      std::for_each(scaled.begin(), scaled.end(), [this](double& value) { value *= scale; });
      bytes = {};
      type = ElementType::kF64;
      scale = 1.0;
    }
  }
  // Address of a local element.
  [[nodiscard]] const std::byte* at(std::int64_t element) const {
    const std::span<const std::byte> held =
        scaled.empty() ? bytes : std::as_bytes(std::span(scaled));
    return held.data() + to_bytes(element, type);
  }

  const Placement* placement;
  ElementType type;
  double scale;
  std::span<const std::byte> bytes;
  std::vector<double> scaled;
};

// How two copies differ.
struct Differences {
  std::int64_t count = 0;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();  // logical offset
  double first_value = 0.0;                                       // of the one copy there
  double second_value = 0.0;                                      // and of the other
  double largest = 0.0;
};

double distance(double a, double b) {
  if (std::isfinite(a) && std::isfinite(b)) {
    return std::abs(a - b);
  }
  const bool equal = a == b || (std::isnan(a) && std::isnan(b));
  return equal ? 0.0 : std::numeric_limits<double>::infinity();
}

// Adds what differs in a run of `length` elements from the logical offset `logical` on.
void add_differences(const CopyView& view,
                     const std::byte* first,
                     const std::byte* second,
                     Interval logical,
                     Differences& differences) {
  const std::size_t size = element_size(view.type);
  if (std::memcmp(first, second, to_bytes(logical.end - logical.begin, view.type)) == 0) {
    return;
  }
  for (std::int64_t i = logical.begin; i < logical.end; ++i, first += size, second += size) {
    if (std::memcmp(first, second, size) == 0) {
      continue;
    }
    std::array<double, 2> values{};
    to_double(view.type, first, 1, &values[0]);
    to_double(view.type, second, 1, &values[1]);
    ++differences.count;
    differences.largest =
        std::max(differences.largest, distance(values[0] * view.scale, values[1] * view.scale));
    if (i < differences.first) {
      differences.first = i;
      differences.first_value = values[0] * view.scale;
      differences.second_value = values[1] * view.scale;
    }
  }
}

void scatter(const CopyView& copy, std::byte* logical) {
  for_each_run(*copy.placement, [&](Offsets offsets, std::int64_t length) {
    std::memcpy(logical + to_bytes(offsets.logical, copy.type),
                copy.at(offsets.local),
                to_bytes(length, copy.type));
  });
}

// Bits decide: -0 is not 0, and one NaN is not another.
Differences compare_copies(const Shard& first, const Shard& second) {
  const bool in_double = first.record->placement.scale != second.record->placement.scale;
  const CopyView a(first, in_double);
  const CopyView b(second, in_double);
  Differences differences;
  const std::int64_t local_count = element_count(a.placement->local_shape());
  const bool same_arrangement = a.placement->dims == b.placement->dims;
  if (same_arrangement && std::memcmp(a.at(0), b.at(0), to_bytes(local_count, a.type)) == 0) {
    return differences;
  }
  // Differently arranged copies meet in logical order.
  std::vector<std::byte> logical;
  if (!same_arrangement) {
    logical.resize(to_bytes(element_count(a.placement->logical_shape()), a.type));
    scatter(a, logical.data());
  }
  for_each_run(*b.placement, [&](Offsets offsets, std::int64_t length) {
    const std::byte* const there =
        same_arrangement ? a.at(offsets.local) : logical.data() + to_bytes(offsets.logical, a.type);
    add_differences(
        a, there, b.at(offsets.local), {offsets.logical, offsets.logical + length}, differences);
  });
  return differences;
}

void find_disagreement(const Part& part,
                       const std::string& prefix,
                       std::vector<MergeFinding>& findings) {
  const Shard& lowest = *part.copies.front();
  std::vector<std::vector<const Shard*>> groups{{&lowest}};
  Differences shown;  // between the first two groups
  double largest = 0.0;
  for (std::size_t i = 1; i < part.copies.size(); ++i) {
    const Shard* const copy = part.copies[i];
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
  MergeFinding finding{MergeDefect::kReplicasDisagree, {lowest.rank}, "", largest};
  std::ostringstream message;
  message.precision(9);
  message << prefix;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::vector<int> ranks;
    for (const Shard* const copy : groups[i]) {
      ranks.push_back(copy->rank);
    }
    message << (i == 0 ? "" : i + 1 == groups.size() ? " and " : ", ") << text_of(ranks);
    if (i > 0) {
      finding.ranks.insert(finding.ranks.end(), ranks.begin(), ranks.end());
    }
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  message << " hold different values in " << to_string(part.region) << ": " << shown.count << " of "
          << element_count(part.region) << " elements differ between ranks " << lowest.rank
          << " and " << groups[1].front()->rank << ", first at "
          << index_text(shown.first, lowest.record->placement.logical_shape()) << " ("
          << shown.first_value << " and " << shown.second_value << "); largest difference "
          << largest;
  finding.message = message.str();
  findings.push_back(std::move(finding));
}

// Adds a shard's scaled values to the logical tensor, or sets them.
void accumulate(const Shard& shard, bool is_first_addend, double* logical) {
  const Record& record = *shard.record;
  std::array<double, kConversionBlock> block{};
  for_each_run(record.placement, [&](Offsets offsets, std::int64_t length) {
    for (std::int64_t done = 0; done < length; done += kConversionBlock) {
      const std::int64_t count = std::min(kConversionBlock, length - done);
      to_double(record.type,
                shard.bytes.data() + to_bytes(offsets.local + done, record.type),
                count,
                block.data());
      double* const target = logical + offsets.logical + done;
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = block[static_cast<std::size_t>(i)] * record.placement.scale;
        target[i] = is_first_addend ? value : target[i] + value;
      }
    }
  });
}

bool is_scaled(const Addends& addends) {
  for (const auto& [index, parts] : addends) {
    for (const Part& part : parts) {
      if (part.copies.front()->record->placement.scale != 1.0) {
        return true;
      }
    }
  }
  return false;
}

// Requires: parts that tile the tensor, in every addend. The lowest rank's copy of each counts.
void assemble(const Addends& addends, std::int64_t count, MergeResult& result) {
  const Shard& first = *addends.begin()->second.front().copies.front();
  if (first.record->placement.is_whole()) {
    result.bytes = first.bytes;
    return;
  }
  const bool in_double = first.record->placement.partial_count > 1 || is_scaled(addends);
  result.type = in_double ? ElementType::kF64 : first.record->type;
  result.storage.resize(to_bytes(count, result.type));
  result.bytes = result.storage;
  for (const auto& [index, parts] : addends) {
    for (const Part& part : parts) {
      const Shard& shard = *part.copies.front();
      if (in_double) {
        accumulate(shard, index == 0, reinterpret_cast<double*>(result.storage.data()));
      } else {
        scatter(CopyView(shard, false), result.storage.data());
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
  const Addends addends = group_shards(shards);
  find_missing_addends(addends, first.placement, result.findings);
  for (const auto& [index, parts] : addends) {
    const std::string prefix = addend_prefix(index, first.placement);
    std::vector<Region> regions;
    for (const Part& part : parts) {
      regions.push_back(part.region);
    }
    const Coverage coverage = cover(result.shape, regions);
    if (!coverage.overlaps.empty()) {
      find_overlap(parts, coverage.overlaps, prefix, result.findings);
    }
    if (!coverage.gaps.empty()) {
      find_gap(parts, coverage.gaps, prefix, result.findings);
    }
  }
  const bool tiles = result.findings.empty();
  for (const auto& [index, parts] : addends) {
    for (const Part& part : parts) {
      find_disagreement(part, addend_prefix(index, first.placement), result.findings);
    }
  }
  if (tiles) {
    assemble(addends, count, result);
  }
  return result;
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
  const auto* const source = static_cast<const std::byte*>(logical);
  auto* const local = static_cast<std::byte*>(target);
  std::memset(local, 0, to_bytes(element_count(placement.local_shape()), type));
  for_each_run(placement, [&](Offsets offsets, std::int64_t length) {
    std::memcpy(local + to_bytes(offsets.local, type),
                source + to_bytes(offsets.logical, type),
                to_bytes(length, type));
  });
}

}  // namespace ttrace
