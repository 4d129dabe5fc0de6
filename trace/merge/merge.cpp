#include "trace/merge/merge.h"

#include "trace/merge/contradictions.h"
#include "trace/merge/merge_sketches.h"
#include "trace/merge/part_findings.h"
#include "trace/merge/parts.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

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
               " has shape ",
               list_text(record.shape),
               ", but its placement has ",
               list_text(record.placement.local_shape()));
  const std::size_t expected = to_bytes(element_count(record.shape), record.type);
  TTRACE_CHECK(shard.bytes.size() == expected,
               FormatError,
               to_string(record.id),
               " of rank ",
               shard.rank,
               " has ",
               shard.bytes.size(),
               " bytes, but its shape ",
               list_text(record.shape),
               " of ",
               name_of(record.type),
               " needs ",
               expected);
  if (!record.placement.is_whole()) {
    validate(record.placement);
  }
  if (shard.file != nullptr) {
    shard.file->require_intact(record);
  }
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

MergeResult merge(std::span<const Shard> shards) {
  TTRACE_CHECK(!shards.empty(), UsageError, "no shards to merge were passed; pass at least one");
  if (std::ranges::any_of(shards,
                          [](const Shard& shard) { return shard.record->keep != Keep::kBytes; })) {
    return merge_sketches(shards);
  }
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
    find_gaps_and_overlaps(parts, space, addend_prefix(index, first.placement), result.findings);
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

Sketch sketch_of(const MergeResult& tensor) {
  return tensor.sketch ? *tensor.sketch : sketch_of(tensor.type, tensor.bytes, whole(tensor.shape));
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
      " cannot be cut out of its logical tensor; only unscaled shards that are not summed can");
  const std::size_t bytes = to_bytes(element_count(placement.local_shape()), type);
  if (bytes == 0) {
    return;  // `target` may be null
  }
  const auto* const source = static_cast<const std::byte*>(logical);
  auto* const local = static_cast<std::byte*>(target);
  std::memset(local, 0, bytes);
  for_each_run(placement, [&](Offsets offsets, std::int64_t length) {
    std::memcpy(local + to_bytes(offsets.local, type),
                source + to_bytes(offsets.logical, type),
                to_bytes(length, type));
  });
}

}  // namespace ttrace
