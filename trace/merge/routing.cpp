#include "trace/merge/routing.h"

#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <cstring>
#include <utility>

namespace ttrace {
namespace {

Choices choices_of(const TensorId& id, const std::vector<Shard>& shards, const Trace& trace) {
  const MergeResult merged = merge(shards);
  TTRACE_CHECK(merged.has_tensor(),
               UsageError,
               to_string(id),
               " of ",
               trace.directory(),
               " cannot be merged: ",
               merged.findings.empty() ? "it has no values" : merged.findings.front().message);
  TTRACE_CHECK(merged.type == ElementType::kI64,
               UsageError,
               to_string(id),
               " of ",
               trace.directory(),
               " is ",
               name_of(merged.type),
               ", but numbers of experts must be i64");
  Choices choices;
  choices.shape = merged.shape;
  choices.experts.resize(merged.bytes.size() / sizeof(std::int64_t));
  if (!merged.bytes.empty()) {
    std::memcpy(choices.experts.data(), merged.bytes.data(), merged.bytes.size());
  }
  return choices;
}

}  // namespace

Routing read_routing(const Trace& trace) {
  std::map<TensorId, std::vector<Shard>> shards;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Record& record : file.records()) {
        if (is_choices(record.id) && !record.id.recompute) {
          shards[record.id].push_back(shard_of(file, record));
        }
      }
    }
  }
  Routing routing;
  for (const auto& [id, parts] : shards) {
    routing.emplace(id, choices_of(id, parts, trace));
  }
  return routing;
}

}  // namespace ttrace
