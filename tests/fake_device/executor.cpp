#include "fake_device/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ttrace::testing::fake {
namespace {

// How long a wait gives other threads to open a gate before it counts as a deadlock.
constexpr std::chrono::seconds kPatience{60};

// After so many queries of one event, a policy that runs nothing by itself runs what the event
// needs.
constexpr int kQueriesBeforeHelp = 16;

thread_local CaptureMode mode_of_thread = CaptureMode::kGlobal;

}  // namespace

std::string describe(StreamKey stream) {
  return "fake:" + std::to_string(stream.device) + " stream " + std::to_string(stream.index);
}

bool Executor::Queue::runnable() const {
  return !items.empty() && (!items.front().needs || items.front().needs->done);
}

void Executor::reset(std::uint64_t seed, Policy policy) {
  const std::unique_lock lock(mutex_);
  std::map<StreamKey, Queue> dropped;
  dropped.swap(queues_);
  for (auto& [key, queue] : dropped) {
    for (Item& item : queue.items) {
      for (const SignalRef& signal : {item.needs, item.sets}) {
        if (signal) {
          signal->done = true;
        }
      }
    }
  }
  capture_.reset();
  counters_ = {};
  failure_ = nullptr;
  policy_ = policy;
  random_.seed(seed);
  change_mood();
  changed_.notify_all();
}

Counters Executor::counters() const {
  const std::unique_lock lock(mutex_);
  return counters_;
}

void Executor::count(const std::function<void(Counters&)>& change) {
  const std::unique_lock lock(mutex_);
  change(counters_);
}

Executor::Queue& Executor::queue(StreamKey stream) {
  Queue& result = queues_[stream];
  if (!result.key) {
    result.key = std::make_shared<const StreamKey>(stream);
  }
  return result;
}

void Executor::push(StreamKey stream, Item item) {
  if (item.sets) {
    item.sets->setter = queue(stream).key;
  }
  queue(stream).items.push_back(std::move(item));
  changed_.notify_all();
  advance();
}

void Executor::enqueue(StreamKey stream, std::string name, Work work) {
  const std::unique_lock lock(mutex_);
  ++counters_.work;
  if (capturing(stream)) {
    capture_->work.push_back(std::move(work));
    return;
  }
  push(stream, {std::move(name), std::move(work), nullptr, nullptr});
}

SignalRef Executor::record(StreamKey stream) {
  const std::unique_lock lock(mutex_);
  auto signal = std::make_shared<Signal>();
  signal->name = "an event of " + describe(stream);
  if (capturing(stream)) {
    signal->captured = true;
    return signal;
  }
  push(stream, {"record", {}, nullptr, signal});
  return signal;
}

void Executor::block(StreamKey stream, const SignalRef& signal) {
  const std::unique_lock lock(mutex_);
  if (!signal) {
    return;
  }
  if (signal->captured) {
    if (!capture_) {
      throw CaptureError(describe(stream) + " waits for an event that was captured");
    }
    capture_->streams.insert(stream);
    return;
  }
  if (capturing(stream)) {
    break_capture(describe(stream) + " waits for work that was not captured");
  }
  if (!signal->done) {
    push(stream, {"wait", {}, signal, nullptr});
  }
}

SignalRef Executor::make_gate(std::string name, Opener opener) {
  auto gate = std::make_shared<Signal>();
  gate->name = "gate " + std::move(name);
  gate->opened_elsewhere = opener == Opener::kOtherThread;
  return gate;
}

void Executor::open(const SignalRef& gate) {
  const std::unique_lock lock(mutex_);
  gate->done = true;
  changed_.notify_all();
  advance();
}

void Executor::open_on(StreamKey stream, const SignalRef& gate) {
  const std::unique_lock lock(mutex_);
  if (capturing(stream)) {
    break_capture(describe(stream) + " opens a gate");
  }
  push(stream, {"open " + gate->name, {}, nullptr, gate});
}

bool Executor::is_done(const SignalRef& signal) const {
  const std::unique_lock lock(mutex_);
  return !signal || signal->done;
}

bool Executor::query(const SignalRef& signal) {
  const std::unique_lock lock(mutex_);
  if (!signal || signal->done) {
    return true;
  }
  if (signal->captured) {
    break_capture("a query of an event that was captured");
  }
  advance();
  if (++signal->queries % kQueriesBeforeHelp == 0) {
    Needs needs;
    collect(signal, needs);
    if (!needs.runnable.empty()) {
      run_head(pick(needs.runnable));
    }
  }
  return signal->done;
}

bool Executor::query_stream(StreamKey stream) {
  const std::unique_lock lock(mutex_);
  if (capturing(stream)) {
    break_capture("a query of " + describe(stream));
  }
  advance();
  Queue& asked = queue(stream);
  if (policy_ == Policy::kLazy && asked.runnable()) {
    run_head(asked);
  }
  return asked.items.empty();
}

bool Executor::idle() const {
  const std::unique_lock lock(mutex_);
  return std::all_of(
      queues_.begin(), queues_.end(), [](const auto& item) { return item.second.items.empty(); });
}

void Executor::wait_event(const SignalRef& signal) {
  std::unique_lock lock(mutex_);
  ++counters_.event_waits;
  if (!signal) {
    return;
  }
  if (signal->captured) {
    break_capture("a wait for an event that was captured");
  }
  refuse_in_capture("a wait for an event", {});
  wait(lock, {signal});
}

void Executor::wait_stream(StreamKey stream) {
  std::unique_lock lock(mutex_);
  ++counters_.stream_waits;
  refuse_in_capture("a wait for " + describe(stream), {stream});
  wait(lock, {record(stream)});
}

void Executor::wait_for_operator(StreamKey stream) {
  std::unique_lock lock(mutex_);
  ++counters_.other_waits;
  refuse_in_capture("a wait of an operator for " + describe(stream), {stream});
  wait(lock, {record(stream)});
}

void Executor::wait_device(int device) {
  std::unique_lock lock(mutex_);
  ++counters_.device_waits;
  std::set<StreamKey> streams;
  for (const auto& [key, queue] : queues_) {
    if (key.device == device) {
      streams.insert(key);
    }
  }
  refuse_in_capture("a wait for the device", streams);
  std::vector<SignalRef> ends;
  for (const StreamKey& stream : streams) {
    ends.push_back(record(stream));
  }
  wait(lock, ends);
}

// ---- order ----

// Bursts and pauses, and streams that lag behind, reach orders that coin flips at every step would
// practically never reach.
void Executor::change_mood() {
  static constexpr std::size_t kAppetites[] = {0, 0, 1, 4, 1000000};
  appetite_ = kAppetites[random_() % std::size(kAppetites)];
  for (auto& [key, queue] : queues_) {
    queue.sluggish = random_() % 3 == 0;
  }
}

std::vector<Executor::Queue*> Executor::runnable_queues() {
  std::vector<Queue*> result;
  for (auto& [key, queue] : queues_) {
    if (queue.runnable()) {
      result.push_back(&queue);
    }
  }
  return result;
}

Executor::Queue& Executor::pick(const std::vector<Queue*>& queues) {
  std::vector<Queue*> brisk;
  std::copy_if(queues.begin(), queues.end(), std::back_inserter(brisk), [](const Queue* queue) {
    return !queue->sluggish;
  });
  const std::vector<Queue*>& drawn_from = brisk.empty() ? queues : brisk;
  return *drawn_from[random_() % drawn_from.size()];
}

void Executor::run_head(Queue& queue) {
  Item item = std::move(queue.items.front());
  queue.items.pop_front();
  if (item.work) {
    running_ = true;
    try {
      item.work();
    } catch (...) {
      failure_ = failure_ ? failure_ : std::current_exception();
    }
    item.work = nullptr;  // what it owned goes now, while nothing else is started
    running_ = false;
  }
  if (item.sets) {
    item.sets->done = true;
  }
}

// Lets the device get on while the host does something else.
void Executor::advance() {
  if (running_ || policy_ == Policy::kLazy) {
    return;
  }
  std::size_t budget = static_cast<std::size_t>(-1);
  if (policy_ == Policy::kSeeded) {
    if (random_() % 16 == 0) {
      change_mood();
    }
    budget = appetite_ == 0 ? 0 : random_() % (appetite_ + 1);
  }
  for (; budget > 0; --budget) {
    const std::vector<Queue*> queues = runnable_queues();
    if (queues.empty()) {
      return;
    }
    Queue& next = pick(queues);
    if (policy_ == Policy::kSeeded && next.sluggish) {
      return;  // streams that lag behind go on only when somebody waits
    }
    run_head(next);
  }
}

// ---- waiting ----

void Executor::collect(const SignalRef& signal, Needs& needs) {
  if (signal->done || !signal->setter) {
    return;
  }
  Queue& setter = queue(*signal->setter);
  if (setter.items.empty() || !needs.visited.insert(&setter).second) {
    return;
  }
  if (setter.runnable()) {
    needs.runnable.push_back(&setter);
    return;
  }
  needs.stuck.push_back(&setter);
  collect(setter.items.front().needs, needs);
}

void Executor::wait(std::unique_lock<std::recursive_mutex>& lock,
                    const std::vector<SignalRef>& signals) {
  if (running_) {
    throw std::logic_error("work on the device waits for the device");
  }
  for (const SignalRef& signal : signals) {
    while (!signal->done) {
      Needs needs;
      collect(signal, needs);
      const std::vector<Queue*> queues =
          policy_ == Policy::kLazy ? needs.runnable : runnable_queues();
      if (queues.empty()) {
        wait_for_other_threads(lock, needs);
      } else {
        run_head(pick(queues));
      }
    }
  }
  changed_.notify_all();
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void Executor::wait_for_other_threads(std::unique_lock<std::recursive_mutex>& lock,
                                      const Needs& needs) {
  std::string message = "deadlock:";
  bool hope = false;
  for (const Queue* stuck : needs.stuck) {
    const SignalRef& signal = stuck->items.front().needs;
    message +=
        (message.back() == ':' ? " " : ", ") + describe(*stuck->key) + " waits for " + signal->name;
    hope = hope || signal->opened_elsewhere;
  }
  if (!hope || changed_.wait_for(lock, kPatience) == std::cv_status::timeout) {
    throw Deadlock(message + ", and nothing that may run opens it");
  }
}

// ---- capture ----

bool Executor::capturing(StreamKey stream) const {
  return capture_of(stream) != 0;
}

std::int64_t Executor::capture_of(StreamKey stream) const {
  const std::unique_lock lock(mutex_);
  return capture_ && capture_->streams.contains(stream) ? capture_->number : 0;
}

bool Executor::any_capture() const {
  const std::unique_lock lock(mutex_);
  return capture_ != nullptr;
}

void Executor::begin_capture(StreamKey stream, CaptureMode mode) {
  const std::unique_lock lock(mutex_);
  if (capture_) {
    throw CaptureError(describe(capture_->origin) + " captures already");
  }
  capture_ = std::make_unique<Capture>();
  capture_->origin = stream;
  capture_->mode = mode;
  capture_->owner = std::this_thread::get_id();
  capture_->streams = {stream};
  capture_->number = ++captures_;
  queue(stream);  // a wait for the device includes it
}

Graph Executor::end_capture(StreamKey stream) {
  const std::unique_lock lock(mutex_);
  if (!capture_ || capture_->origin != stream) {
    throw CaptureError(describe(stream) + " did not begin a capture");
  }
  const std::unique_ptr<Capture> capture = std::move(capture_);
  if (!capture->broken_by.empty()) {
    throw CaptureError("the capture of " + describe(stream) + " is invalid: " + capture->broken_by);
  }
  return std::make_shared<const std::vector<Work>>(std::move(capture->work));
}

// Work of joined streams runs in the order in which it was enqueued, which their events allow.
void Executor::replay(const Graph& graph, StreamKey stream) {
  enqueue(stream, "graph", [graph] {
    for (const Work& work : *graph) {
      work();
    }
  });
}

CaptureMode Executor::exchange_thread_mode(CaptureMode mode) {
  return std::exchange(mode_of_thread, mode);
}

void Executor::refuse_in_capture(const std::string& what, const std::set<StreamKey>& awaited) {
  const bool of_capture = std::any_of(
      awaited.begin(), awaited.end(), [this](StreamKey stream) { return capturing(stream); });
  const bool concerned =
      capture_ && mode_of_thread != CaptureMode::kRelaxed &&
      (capture_->mode == CaptureMode::kGlobal || capture_->owner == std::this_thread::get_id());
  if (of_capture || concerned) {
    break_capture(what);
  }
}

void Executor::break_capture(const std::string& what) {
  std::string message = what + " is not permitted";
  if (capture_) {
    capture_->broken_by = capture_->broken_by.empty() ? what : capture_->broken_by;
    message += " while " + describe(capture_->origin) + " captures";
  }
  throw CaptureError(message);
}

}  // namespace ttrace::testing::fake
