#include "hooks/write/sink.h"
#include "trace/base/kind.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/noise_of_ranks.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

struct ReferenceRecord {
  const RankFile* file = nullptr;
  const Record* record = nullptr;
};

class NoiseSink : public Sink {
 public:
  explicit NoiseSink(const Environment& environment)
      : directory_(environment.reference), last_step_(environment.last_step - 1) {
    pass_.seed = environment.noise_seed;
    pass_.run = environment.run;
    reference_ = Trace::open(directory_);
    for (const StepTrace& step : reference_.steps()) {
      for (const Record& record : step.ranks.front().records()) {
        by_id_.emplace(record.id, ReferenceRecord{&step.ranks.front(), &record});
      }
    }
  }

  [[nodiscard]] bool is_concurrent() const override { return true; }
  void begin_step(std::int64_t step, std::uint64_t /*began*/) override { step_ = step; }
  void append(Record record, std::span<const std::byte> bytes) override;
  [[nodiscard]] bool takes_device_values() const override { return true; }
  void append_on_device(Record record, const DeviceValues& values) override;
  void note(std::string remark) override { log(LogLevel::kDebug, remark); }
  void flush() override {}
  void end_step(bool whole) override;

 private:
  // Null, and remembered, if the reference does not have the tensor.
  [[nodiscard]] const ReferenceRecord* find(const TensorId& id);
  void add(const Record& record, NoiseRow row);
  void require_same_shape(const Record& record, const std::vector<std::int64_t>& reference) const;

  std::string directory_;
  std::int64_t last_step_;
  std::int64_t step_ = 0;
  Trace reference_;
  std::map<TensorId, ReferenceRecord> by_id_;
  std::mutex mutex_;  // guards what follows
  NoisePass pass_;
  std::uint64_t unknown_ = 0;  // ids that the reference does not have
  std::string first_unknown_;
};

// `file`: where a record is that keeps a sketch.
MergeResult merge_one(const Record& record,
                      std::span<const std::byte> bytes,
                      const RankFile* file = nullptr) {
  const Shard shard{0, &record, bytes, file};
  MergeResult result = merge(std::span(&shard, 1));
  TTRACE_CHECK(result.has_values(),
               FormatError,
               to_string(record.id),
               " cannot be merged for the noise table: ",
               result.why_absent());
  return result;
}

// Whether two records can be compared as they were recorded: merging changes nothing.
bool are_plain(const Record& record, const Record& reference) {
  return record.placement.is_whole() && reference.placement.is_whole() &&
         record.type == reference.type && record.shape == reference.shape;
}

const ReferenceRecord* NoiseSink::find(const TensorId& id) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) {
    return &found->second;
  }
  const std::lock_guard lock(mutex_);
  if (unknown_++ == 0) {
    first_unknown_ = to_string(id);
  }
  return nullptr;
}

void NoiseSink::add(const Record& record, NoiseRow row) {
  row.id = record.id;
  row.covered = !record.lacks_noise;
  const std::lock_guard lock(mutex_);
  pass_.rows.push_back(std::move(row));
}

void NoiseSink::require_same_shape(const Record& record,
                                   const std::vector<std::int64_t>& reference) const {
  TTRACE_CHECK(record.placement.logical_shape() == reference,
               UsageError,
               to_string(record.id),
               " has another shape in this noise pass than in ",
               directory_,
               "; repeat the reference pass with the same program");
}

void NoiseSink::append(Record record, std::span<const std::byte> bytes) {
  const ReferenceRecord* const other = find(record.id);
  if (other == nullptr) {
    return;
  }
  const bool is_sketch = other->record->keep != Keep::kBytes;
  MergeResult reference = merge_one(
      *other->record, other->file->bytes(*other->record), is_sketch ? other->file : nullptr);
  MergeResult mine = merge_one(record, bytes);
  if (is_of_operator(record.id.kind) && reference.shape != mine.shape) {
    return;  // its shape depends on values
  }
  require_same_shape(record, reference.shape);
  add(record, noise_row(reference, mine));
}

// Equal digests spare every copy. Otherwise the reference goes to the device, and only the row
// comes back.
void NoiseSink::append_on_device(Record record, const DeviceValues& values) {
  const auto found = by_id_.find(record.id);
  if (found == by_id_.end() || !are_plain(record, *found->second.record) ||
      found->second.record->keep != Keep::kBytes) {
    const std::vector<std::byte> bytes = values.bytes();
    append(std::move(record), std::span(bytes));
    return;
  }
  const ReferenceRecord& other = found->second;
  const std::span<const std::byte> reference = other.file->bytes(*other.record);
  const Digest digest = digest_of(reference.data(), static_cast<std::int64_t>(reference.size()));
  if (values.digest() == digest) {
    add(record, noise_row(Statistics(), Slices()));
    return;
  }
  const Deviation deviation = values.deviation_from(reference);
  add(record,
      noise_row(deviation.statistics, is_floating(record.type) ? deviation.slices : Slices()));
}

void NoiseSink::end_step(bool whole) {
  if (!whole || step_ != last_step_) {
    return;
  }
  if (unknown_ > 0) {
    log(LogLevel::kWarning,
        "the reference " + directory_ + " does not have " + std::to_string(unknown_) +
            " tensors of this noise pass; the first is " + first_unknown_);
  }
  // Whichever thread was first: the same pass writes the same bytes.
  std::sort(pass_.rows.begin(), pass_.rows.end(), [](const NoiseRow& left, const NoiseRow& right) {
    return left.id < right.id;
  });
  write_noise(directory_, pass_);
}

}  // namespace

std::unique_ptr<Sink> make_noise_sink(const Environment& environment) {
  return std::make_unique<NoiseSink>(environment);
}

}  // namespace ttrace
