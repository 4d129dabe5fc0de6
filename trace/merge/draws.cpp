#include "trace/merge/draws.h"

#include "trace/merge/routing.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>

namespace ttrace {
namespace {

std::uint64_t with(const void* bytes, std::size_t size, std::uint64_t digest) {
  return XXH3_64bits_withSeed(bytes, size, digest);
}

bool is_permutation(const Record& record) {
  return is_draw_of_data(record.id) && record.id.path == "step.randperm" &&
         record.type == ElementType::kI64 && record.shape.size() == 1;
}

// Behind permutations of `count` rows, which each rank has numbered from 0, come the next rank's.
void number_all_rows(MergeResult& merged, std::int64_t count) {
  merged.storage = std::vector<std::byte>(merged.bytes.begin(), merged.bytes.end());
  merged.bytes = merged.storage;
  for (std::int64_t at = 0; at < merged.shape.front(); ++at) {
    std::byte* const place = &merged.storage[static_cast<std::size_t>(at) * sizeof at];
    std::int64_t row = 0;
    std::memcpy(&row, place, sizeof row);
    row += at - at % count;
    std::memcpy(place, &row, sizeof row);
  }
}

std::uint64_t values_digest(const Shard& shard) {
  return with(shard.bytes.data(), shard.bytes.size(), 0);
}

}  // namespace

Draws::Draws(const Trace& trace) {
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kDraw && !record.id.recompute) {
        shards_[record.id].push_back({file.layout().rank, &record, file.bytes(record)});
      }
    }
  }
}

std::optional<MergeResult> Draws::of(const TensorId& id) const {
  const auto found = shards_.find(id);
  return found == shards_.end() ? std::nullopt : whole_draw(found->second);
}

bool is_draw_of_data(const TensorId& id) {
  return id.kind == Kind::kDraw && id.microbatch == kNoMicrobatch;
}

bool repeats_data(std::span<const Shard> shards) {
  const Shard& first = shards.front();
  return is_draw_of_data(first.record->id) && !first.record->placement.is_whole() &&
         std::ranges::all_of(shards, [&](const Shard& shard) {
           return std::ranges::equal(shard.bytes, first.bytes);
         });
}

bool is_readable_draw(std::span<const Shard> shards) {
  return std::ranges::none_of(
      shards, [](const Shard& shard) { return element_count(shard.record->shape) == 0; });
}

std::optional<MergeResult> whole_draw(std::span<const Shard> shards) {
  if (!is_readable_draw(shards)) {
    return std::nullopt;
  }
  if (repeats_data(shards)) {
    Record whole_one = *shards.front().record;
    whole_one.placement = whole(whole_one.shape);
    const Shard shard{shards.front().rank, &whole_one, shards.front().bytes};
    return merge(std::span(&shard, 1));
  }
  MergeResult merged = merge(shards);
  const bool is_guess =
      std::ranges::any_of(shards, [](const Shard& shard) { return shard.record->undeclared; });
  if (!merged.has_tensor() || (is_guess && !merged.findings.empty())) {
    return std::nullopt;
  }
  const Record& first = *shards.front().record;
  if (is_permutation(first)) {
    number_all_rows(merged, first.shape.front());
  }
  return merged;
}

std::optional<TensorId> data_of_its_own(const Draws& reference, const Draws& candidate) {
  std::set<std::uint64_t> known;
  for (const auto& [id, shards] : reference.all()) {
    if (is_draw_of_data(id)) {
      std::ranges::transform(shards, std::inserter(known, known.end()), values_digest);
    }
  }
  std::size_t own = 0;  // bytes
  std::size_t all = 0;
  std::optional<TensorId> first;
  for (const auto& [id, shards] : candidate.all()) {
    if (!is_draw_of_data(id) || repeats_data(shards)) {
      continue;
    }
    for (const Shard& shard : shards) {
      const bool is_own = !known.contains(values_digest(shard));
      own += is_own ? shard.bytes.size() : 0;
      all += shard.bytes.size();
      first = is_own && !first ? std::optional(id) : first;
    }
  }
  return known.empty() || 2 * own <= all ? std::nullopt : first;
}

bool is_same(const MergeResult& own, const MergeResult& other) {
  return own.shape == other.shape && own.type == other.type &&
         std::ranges::equal(own.bytes, other.bytes);
}

std::string digest_of_choices(const Trace& trace) {
  const Routing routing = read_routing(trace);
  const Draws draws(trace);
  if (routing.empty() && draws.empty()) {
    return {};
  }
  std::uint64_t digest = 0;
  for (const auto& [id, choices] : routing) {
    const std::string name = to_string(id);
    digest = with(name.data(), name.size(), digest);
    digest = with(choices.experts.data(), choices.experts.size() * sizeof(std::int64_t), digest);
  }
  for (const auto& [id, shards] : draws.all()) {
    const std::string name = to_string(id);
    digest = with(name.data(), name.size(), digest);
    for (const Shard& shard : shards) {
      digest = with(shard.bytes.data(), shard.bytes.size(), digest);
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

}  // namespace ttrace
