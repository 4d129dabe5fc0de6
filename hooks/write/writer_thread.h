// A bounded queue and the one background thread that writes what is in it.
//
// Copying a record at hook time is fast, writing it is not; the queue lets training proceed in the
// meantime. It is bounded in bytes: a full queue blocks the training thread until there is room,
// and nothing is dropped. While the training thread waits for the end of a step it takes records
// out of the queue itself, where the sink is concurrent.
//
// Thread-safety: call from any thread, except that steps begin and end on the training thread.
#pragma once

#include "hooks/base/byte_buffers.h"
#include "hooks/base/device_values.h"
#include "hooks/base/snapshot.h"
#include "hooks/write/sink.h"
#include "trace/base/not_seen.h"
#include "trace/file/edge.h"
#include "trace/file/record.h"
#include "trace/file/rounded_sum.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ttrace {

class WriterThread {
 public:
  // `on_error` gets the sink's first exception, on the thread that had it; afterwards all is
  // discarded.
  WriterThread(std::unique_ptr<Sink> sink,
               std::function<void(std::exception_ptr)> on_error,
               std::size_t capacity = kQueueBytes);
  ~WriterThread();                             // writes what is queued, then joins
  WriterThread(const WriterThread&) = delete;  // owns a thread
  WriterThread& operator=(const WriterThread&) = delete;

  // Returns when the sink has begun: a new file removes what an earlier run left, which must not
  // happen after this step has left something.
  void begin_step(std::int64_t step, std::uint64_t began);
  // Blocks while the queue is full. A tensor larger than the capacity waits for an empty queue. The
  // bytes may still be on their way; the writer waits for them. `rank`: see Sink::append_of_rank().
  void append(Record record, SnapshotBytes bytes, std::size_t rank = 0);
  // The same for values that stay on their device; the queue's bound counts their bytes, too.
  void append_on_device(Record record, std::unique_ptr<const DeviceValues> values);
  [[nodiscard]] bool takes_device_values() const { return takes_device_values_; }
  void note(const std::string& remark);
  void not_seen(const NotSeen& fact);
  void code(CodeRole role, const std::string& path, const std::string& text);
  // `norms`: of each part of the addend, doubles whose squares are added to sum.squared and, where
  // they are a vector, to sum.by_column, once they are here.
  void sum(const RoundedSum& sum, std::vector<Snapshot> norms);
  void edge(const Edge& edge);
  void flush();
  // Returns when everything queued so far is written and the step is ended. `whole` is asked when
  // the writer gets there, so that a failed append counts.
  void end_step(const std::function<bool()>& whole);
  // Discards what is queued, ends the thread and the sink without ending the step; every later call
  // does nothing. For a process that is about to end.
  void abandon();

 private:
  struct Task {
    std::size_t bytes = 0;
    std::function<void(Sink&)> run;
    bool anywhere = false;  // any thread may run it, at the same time as others
  };
  void push(Task task);
  // Requires: lock held, a queue that is not empty.
  [[nodiscard]] Task take();
  void run(const Task& task);
  void wait_until_idle();
  void work();
  void finish_task(const Task& task);

  std::unique_ptr<Sink> sink_;
  std::function<void(std::exception_ptr)> on_error_;
  const std::size_t capacity_;
  const bool concurrent_;  // the sink
  const bool takes_device_values_;
  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::condition_variable changed_;  // any of the following
  std::deque<Task> queue_;
  std::size_t queued_bytes_ = 0;  // of tasks not finished yet
  std::size_t unfinished_ = 0;    // tasks queued or running
  bool stopping_ = false;
  bool abandoned_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace ttrace
