#include "trace/samples/borrowed_values.h"

#include "trace/file/borrowed.h"
#include "trace/place/boxes.h"

#include <ttrace/element_type.h>

#include <vector>

namespace ttrace {
namespace {

void set_run(const MergeResult& whole,
             std::int64_t first,
             std::int64_t count,
             MergeResult& target) {
  const auto byte = [first](const MergeResult& tensor) {
    return static_cast<std::size_t>(first) * element_size(tensor.type);
  };
  std::vector<double> values(static_cast<std::size_t>(count));
  to_double(whole.type, whole.bytes.data() + byte(whole), count, values.data());
  from_double(target.type, values.data(), count, target.storage.data() + byte(target));
}

}  // namespace

void set_borrowed(std::span<const Shard> shards, const MergeResult& whole, MergeResult& target) {
  if (whole.shape != target.shape || !whole.has_tensor() || !target.has_tensor()) {
    return;
  }
  for (const Shard& shard : shards) {
    if (!is_borrowed(*shard.record)) {
      continue;
    }
    if (target.storage.empty()) {
      target.storage.assign(target.bytes.begin(), target.bytes.end());
      target.bytes = target.storage;
    }
    for_each_run(shard.record->placement, [&](Offsets offsets, std::int64_t length) {
      set_run(whole, offsets.logical, length, target);
    });
  }
}

}  // namespace ttrace
