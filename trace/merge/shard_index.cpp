#include "trace/merge/shard_index.h"

namespace ttrace {

ShardIndex::ShardIndex(const Trace& trace) {
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      shards_[record.id].push_back(shard_of(file, record));
    }
  }
}

std::span<const Shard> ShardIndex::of(const TensorId& id) const {
  const auto found = shards_.find(id);
  return found == shards_.end() ? std::span<const Shard>() : std::span<const Shard>(found->second);
}

}  // namespace ttrace
