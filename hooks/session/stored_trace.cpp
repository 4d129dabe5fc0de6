#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/error.h>
#include <ttrace/trace.h>

#include <set>
#include <utility>

namespace ttrace {

struct StoredTrace::Impl {
  explicit Impl(const std::string& directory) : trace(Trace::open(directory)), shards(trace) {}

  Trace trace;
  ShardIndex shards;  // refers to `trace`
};

std::vector<double> MergedTensor::values() const {
  std::vector<double> result(bytes.size() / element_size(type));
  to_double(type, bytes.data(), std::ssize(result), result.data());
  return result;
}

StoredTrace StoredTrace::open(const std::string& directory) {
  return StoredTrace(std::make_unique<const Impl>(directory));
}

StoredTrace::StoredTrace(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
StoredTrace::~StoredTrace() = default;
StoredTrace::StoredTrace(StoredTrace&&) noexcept = default;
StoredTrace& StoredTrace::operator=(StoredTrace&&) noexcept = default;

const std::string& StoredTrace::pass() const {
  return impl_->trace.manifest().pass;
}

int StoredTrace::world_size() const {
  return impl_->trace.manifest().world_size;
}

const std::vector<std::int64_t>& StoredTrace::steps() const {
  return impl_->trace.manifest().steps;
}

const Section& StoredTrace::layout() const {
  return impl_->trace.manifest().layout;
}

RunDescription StoredTrace::description() const {
  const Manifest& manifest = impl_->trace.manifest();
  return {.model = manifest.model,
          .data = manifest.data,
          .versions = manifest.versions,
          .precision = manifest.precision,
          .untraced = manifest.untraced};
}

std::vector<TensorId> StoredTrace::ids() const {
  std::set<TensorId> ids;
  for (const RankFile& file : impl_->trace.files()) {
    for (const Record& record : file.records()) {
      ids.insert(record.id);
    }
  }
  return {ids.begin(), ids.end()};
}

std::vector<StoredRecord> StoredTrace::records(const TensorId& id) const {
  std::vector<StoredRecord> result;
  for (const Shard& shard : impl_->shards.of(id)) {
    result.push_back({shard.rank, shard.record->type, shard.record->shape});
  }
  return result;
}

MergedTensor StoredTrace::merged(const TensorId& id) const {
  const auto shards = impl_->shards.of(id);
  TTRACE_CHECK(!shards.empty(),
               UsageError,
               "the trace ",
               impl_->trace.directory(),
               " has no ",
               to_string(id),
               "; `ttrace ls` lists its tensors");
  const MergeResult merged = merge(shards);
  TTRACE_CHECK(merged.has_tensor(),
               FormatError,
               to_string(id),
               " of ",
               impl_->trace.directory(),
               " cannot be merged: ",
               merged.why_absent());
  MergedTensor result;
  result.type = merged.type;
  result.shape = merged.shape;
  result.bytes.assign(merged.bytes.begin(), merged.bytes.end());
  for (const MergeFinding& finding : merged.findings) {
    result.contradictions.push_back(finding.message);
  }
  return result;
}

MergedTensor StoredTrace::merged(std::string_view id) const {
  return merged(parse_tensor_id(id));
}

}  // namespace ttrace
