// The target of the writer thread's records: a rank's files, the noise table, or only a count.
//
// Thread-safety: a sink is built on the training thread and then used by the writer thread only,
// but for append() of one that is concurrent.
#pragma once

#include "hooks/base/device_values.h"
#include "hooks/base/environment.h"
#include "trace/base/not_seen.h"
#include "trace/file/capture_counts.h"
#include "trace/file/code_lines.h"
#include "trace/file/edge.h"
#include "trace/file/record.h"
#include "trace/file/rounded_sum.h"

#include <ttrace/layout.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

class Sink {
 public:
  Sink() = default;
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;  // owns open files
  Sink& operator=(const Sink&) = delete;

  // Whether several threads may append() at once, in any order.
  [[nodiscard]] virtual bool is_concurrent() const { return false; }
  // `began`: see StepClock.
  virtual void begin_step(std::int64_t step, std::uint64_t began) = 0;
  virtual void append(Record record, std::span<const std::byte> bytes) = 0;
  // The same of another rank that the process simulates, by its number; 0 is this one.
  virtual void append_of_rank(std::size_t /*rank*/,
                              Record record,
                              std::span<const std::byte> bytes) {
    append(std::move(record), bytes);
  }
  // Whether the sink takes values that are still on their device, by append_on_device().
  [[nodiscard]] virtual bool takes_device_values() const { return false; }
  virtual void append_on_device(Record record, const DeviceValues& values) {
    append(std::move(record), std::span<const std::byte>(values.bytes()));
  }
  virtual void note(std::string remark) = 0;
  // Notes of the records that were kept. Sinks that write no trace ignore them.
  virtual void not_seen(NotSeen /*fact*/) {}
  virtual void sum(const RoundedSum& /*sum*/) {}
  virtual void edge(const Edge& /*edge*/) {}
  virtual void code(CodeRole /*role*/, const std::string& /*path*/, const std::string& /*text*/) {}
  // A micro-batch is over: what was appended should survive a crash.
  virtual void flush() = 0;
  // `whole`: nothing failed, so the step's file may get its final name.
  virtual void end_step(bool whole) = 0;
};

// Writes step000000/rank00000.h5.
[[nodiscard]] std::unique_ptr<Sink> make_file_sink(const Environment& environment,
                                                   const Layout& layout);

// Counts records and writes counts/rank00000.json after the last traced step. `start`: the
// parameters that the pass would have stored.
[[nodiscard]] std::unique_ptr<Sink> make_count_sink(const Environment& environment,
                                                    const Layout& layout,
                                                    const TensorCount& start);

// One sink for each rank that the process simulates. What is no record goes to the first. Requires:
// at least one.
[[nodiscard]] std::unique_ptr<Sink> make_rank_sinks(std::vector<std::unique_ptr<Sink>> ranks);

// Compares every record with the reference's record of the same id and writes the table after the
// last traced step. Requires: one rank wrote the reference. Throws FormatError for an unreadable
// one.
[[nodiscard]] std::unique_ptr<Sink> make_noise_sink(const Environment& environment);

}  // namespace ttrace
