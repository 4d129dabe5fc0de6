#include "trace/merge/draws.h"

#include "trace/merge/routing.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace ttrace {
namespace {

std::uint64_t with(const void* bytes, std::size_t size, std::uint64_t digest) {
  return XXH3_64bits_withSeed(bytes, size, digest);
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
  return merged;
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
