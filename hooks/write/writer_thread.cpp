#include "hooks/write/writer_thread.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

// Of one part of an addend. `shape`: that of `norms`, which are doubles.
void add_part(std::span<const std::byte> norms,
              std::span<const std::int64_t> shape,
              bool is_first,
              RoundedSum& sum) {
  std::vector<double> squares(norms.size() / sizeof(double));
  std::memcpy(squares.data(), norms.data(), norms.size());
  for (double& value : squares) {
    value *= value;
    sum.squared = sum.squared.value_or(0.0) + value;
  }
  if (is_first && !shape.empty()) {
    sum.by_column = std::move(squares);
  } else if (!shape.empty() && sum.by_column.size() == squares.size()) {
    std::ranges::transform(squares, sum.by_column, sum.by_column.begin(), std::plus());
  } else {
    sum.by_column.clear();  // parts have no columns in common
  }
}

}  // namespace

WriterThread::WriterThread(std::unique_ptr<Sink> sink,
                           std::function<void(std::exception_ptr)> on_error,
                           std::size_t capacity)
    : sink_(std::move(sink)),
      on_error_(std::move(on_error)),
      capacity_(capacity),
      concurrent_(sink_->is_concurrent()),
      takes_device_values_(sink_->takes_device_values()),
      thread_([this] { work(); }) {}

WriterThread::~WriterThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void WriterThread::abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WriterThread::begin_step(std::int64_t step, std::uint64_t began) {
  push({0, [=](Sink& sink) { sink.begin_step(step, began); }});
  wait_until_idle();
}

void WriterThread::append(Record record, SnapshotBytes bytes, std::size_t rank) {
  const std::size_t size = bytes.size();
  // A std::function must be copyable; the pair is shared so that it is moved, never copied.
  auto item =
      std::make_shared<std::pair<Record, SnapshotBytes>>(std::move(record), std::move(bytes));
  push({size,
        [item, rank](Sink& sink) {
          std::move(item->second).hand_to([&](std::span<const std::byte> here) {
            sink.append_of_rank(rank, std::move(item->first), here);
          });
        },
        concurrent_});
}

void WriterThread::append_on_device(Record record, std::unique_ptr<const DeviceValues> values) {
  const std::size_t size = values->size();
  auto item = std::make_shared<std::pair<Record, std::unique_ptr<const DeviceValues>>>(
      std::move(record), std::move(values));
  push({size,
        [item](Sink& sink) {
          sink.append_on_device(std::move(item->first), *item->second);
          item->second.reset();  // the memory of the device, before the queue's bound lets more in
        },
        concurrent_});
}

void WriterThread::edge(const Edge& edge) {
  push({sizeof(edge), [edge](Sink& sink) { sink.edge(edge); }});
}

void WriterThread::sum(const RoundedSum& sum, std::vector<Snapshot> norms) {
  const std::size_t size = std::transform_reduce(
      norms.begin(), norms.end(), sizeof(sum), std::plus(), [](const Snapshot& part) {
        return part.bytes.size();
      });
  auto item = std::make_shared<std::pair<RoundedSum, std::vector<Snapshot>>>(sum, std::move(norms));
  push({size, [item](Sink& sink) {
          for (Snapshot& part : item->second) {
            std::move(part.bytes).hand_to([&](std::span<const std::byte> here) {
              add_part(here, part.shape, &part == &item->second.front(), item->first);
            });
          }
          sink.sum(item->first);
        }});
}

void WriterThread::note(const std::string& remark) {
  push({remark.size(), [remark](Sink& sink) { sink.note(remark); }});
}

void WriterThread::not_seen(const NotSeen& fact) {
  push({fact.sentence.size(), [fact](Sink& sink) { sink.not_seen(fact); }});
}

void WriterThread::code(CodeRole role, const std::string& path, const std::string& text) {
  push({path.size() + text.size(), [=](Sink& sink) { sink.code(role, path, text); }});
}

void WriterThread::flush() {
  push({0, [](Sink& sink) { sink.flush(); }});
}

void WriterThread::end_step(const std::function<bool()>& whole) {
  wait_until_idle();  // the end must not run at the same time as an append()
  push({0, [whole](Sink& sink) { sink.end_step(whole()); }});
  wait_until_idle();
}

void WriterThread::wait_until_idle() {
  std::unique_lock lock(mutex_);
  const auto may_help = [this] { return !queue_.empty() && queue_.front().anywhere; };
  while (!abandoned_ && unfinished_ > 0) {
    if (!may_help()) {
      changed_.wait(lock, [&] { return abandoned_ || unfinished_ == 0 || may_help(); });
      continue;
    }
    const Task task = take();
    lock.unlock();
    run(task);
    lock.lock();
  }
}

void WriterThread::push(Task task) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return abandoned_ || queued_bytes_ == 0 || queued_bytes_ + task.bytes <= capacity_;
    });
    if (abandoned_) {
      return;
    }
    queued_bytes_ += task.bytes;
    ++unfinished_;
    queue_.push_back(std::move(task));
  }
  changed_.notify_all();
}

namespace {

// A write beyond `ulimit -f` is an error like a full disk, not the end of the training program: the
// signal goes to the thread that writes.
void block_file_size_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

WriterThread::Task WriterThread::take() {
  Task task = std::move(queue_.front());
  queue_.pop_front();
  return task;
}

void WriterThread::run(const Task& task) {
  if (!broken_) {
    try {
      task.run(*sink_);
    } catch (...) {
      if (!broken_.exchange(true)) {
        on_error_(std::current_exception());
      }
    }
  }
  finish_task(task);
}

void WriterThread::work() {
  block_file_size_signal();
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return abandoned_ || stopping_ || !queue_.empty(); });
      if (abandoned_ || queue_.empty()) {
        break;
      }
      task = take();
    }
    run(task);
  }
  sink_.reset();  // HDF5 files are closed by the thread that opened them
}

void WriterThread::finish_task(const Task& task) {
  {
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= task.bytes;
    --unfinished_;
  }
  changed_.notify_all();
}

}  // namespace ttrace
