#include "hooks/session/torch_traces.h"

#include "hooks/base/scalar_type.h"
#include "trace/base/not_seen.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <ATen/ops/empty.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace ttrace {
namespace {

using c10::intrusive_ptr;
using Integers = std::vector<std::int64_t>;

// id, rank, element type, shape, logical shape, order, norm, largest magnitude, NaN and Inf,
// addends of the sum that the record is one of, whether nobody said where it lies, nanoseconds
// since the step began or kNoTime.
using RecordTuple = std::tuple<std::string,
                               std::int64_t,
                               std::string,
                               Integers,
                               Integers,
                               std::int64_t,
                               double,
                               double,
                               std::int64_t,
                               std::int64_t,
                               bool,
                               std::int64_t>;
constexpr std::int64_t kNoTime = -1;
// A box of a rank's part: where it begins there, where in the logical tensor, and its extent.
using BoxTuple = std::tuple<Integers, Integers, Integers>;

at::Tensor tensor_of(ElementType type,
                     const std::vector<std::int64_t>& shape,
                     std::span<const std::byte> bytes) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(scalar_type(type)));
  if (!bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return tensor;
}

struct StoredTraceObject : torch::CustomClassHolder {
  StoredTraceObject(const std::string& directory, bool partial)
      : trace(partial ? Trace::open_partial(directory) : Trace::open(directory)), shards(trace) {}

  [[nodiscard]] std::span<const Shard> of(const std::string& id) const {
    const std::span<const Shard> found = shards.of(parse_tensor_id(id));
    TTRACE_CHECK(!found.empty(), UsageError, trace.directory(), " has no tensor ", id);
    return found;
  }
  [[nodiscard]] const Shard& of(const std::string& id, std::int64_t rank) const {
    for (const Shard& shard : of(id)) {
      if (shard.rank == rank) {
        return shard;
      }
    }
    TTRACE_THROW(UsageError, "rank ", rank, " of ", trace.directory(), " has no tensor ", id);
  }

  Trace trace;
  ShardIndex shards;
};

using StoredTracePtr = intrusive_ptr<StoredTraceObject>;

std::vector<RecordTuple> records(const StoredTracePtr& self) {
  std::vector<RecordTuple> result;
  for (const RankFile& file : self->trace.files()) {
    for (const Record& record : file.records()) {
      result.emplace_back(to_string(record.id),
                          file.layout().rank,
                          std::string(name_of(record.type)),
                          record.shape,
                          record.placement.logical_shape(),
                          static_cast<std::int64_t>(record.order),
                          record.norm,
                          record.max_abs,
                          static_cast<std::int64_t>(record.nonfinite),
                          record.placement.partial_count,
                          record.undeclared,
                          file.began() ? static_cast<std::int64_t>(record.time) : kNoTime);
    }
  }
  return result;
}

// Step, rank, when the step began there, for all that say so.
std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> began(
    const StoredTracePtr& self) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> result;
  for (const StepTrace& step : self->trace.steps()) {
    for (const RankFile& file : step.ranks) {
      if (file.began()) {
        result.emplace_back(
            step.step, file.layout().rank, static_cast<std::int64_t>(*file.began()));
      }
    }
  }
  return result;
}

std::vector<std::string> notes(const StoredTracePtr& self) {
  std::vector<std::string> result;
  for (const StepTrace& step : self->trace.steps()) {
    result.insert(result.end(), step.lacking.begin(), step.lacking.end());
    for (const RankFile& file : step.ranks) {
      result.insert(result.end(), file.notes().begin(), file.notes().end());
    }
  }
  return result;
}

// Kind and sentence of each, once.
std::vector<std::tuple<std::string, std::string>> not_seen(const StoredTracePtr& self) {
  std::set<NotSeen> facts;
  for (const StepTrace& step : self->trace.steps()) {
    for (const RankFile& file : step.ranks) {
      facts.insert(file.not_seen().begin(), file.not_seen().end());
    }
  }
  std::vector<std::tuple<std::string, std::string>> result;
  for (const NotSeen& fact : facts) {
    result.emplace_back(name_of(fact.kind), fact.sentence);
  }
  return result;
}

at::Tensor local(const StoredTracePtr& self, const std::string& id, std::int64_t rank) {
  const Shard& shard = self->of(id, rank);
  TTRACE_CHECK(has_elements(shard),
               UsageError,
               "of ",
               id,
               " the trace keeps a sketch, and none of its elements; trace with TTRACE_KEEP=bytes");
  return tensor_of(shard.record->type, shard.record->shape, shard.bytes);
}

std::vector<BoxTuple> boxes(const StoredTracePtr& self, const std::string& id, std::int64_t rank) {
  std::vector<BoxTuple> result;
  for (const Rectangle& box : rectangles(self->of(id, rank).record->placement)) {
    result.emplace_back(box.local_start, box.logical_start, box.extent);
  }
  return result;
}

// The logical tensor, or an empty list and what is wrong with its parts.
std::tuple<std::vector<at::Tensor>, std::vector<std::string>> merged(const StoredTracePtr& self,
                                                                     const std::string& id) {
  const MergeResult result = merge(self->of(id));
  std::vector<std::string> findings;
  for (const MergeFinding& finding : result.findings) {
    findings.push_back(finding.message);
  }
  std::vector<at::Tensor> tensors;
  if (result.has_tensor()) {
    tensors.push_back(tensor_of(result.type, result.shape, result.bytes));
  }
  return {std::move(tensors), std::move(findings)};
}

// ||x|| of the logical tensor; nothing where its parts make none.
std::optional<double> norm(const StoredTracePtr& self, const std::string& id) {
  const MergeResult result = merge(self->of(id));
  if (result.has_values()) {
    return result.sketch ? norm_of(*result.sketch)
                         : tensor_of(result.type, result.shape, result.bytes)
                               .to(at::kDouble)
                               .norm()
                               .item<double>();
  }
  return std::nullopt;
}

}  // namespace

void register_traces(torch::Library& library) {
  library.class_<StoredTraceObject>("StoredTrace")
      .def(torch::init<std::string, bool>())
      .def("records", &records)
      .def("began", &began)
      .def("notes", &notes)
      .def("not_seen", &not_seen)
      .def("local", &local)
      .def("boxes", &boxes)
      .def("merged", &merged)
      .def("norm", &norm);
}

}  // namespace ttrace
