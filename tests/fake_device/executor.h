// Runs the work of a pretended accelerator: a queue per stream, events between them, and gates that
// only the host opens. There is no thread of its own. Work runs on host threads, when they wait and
// now and then when they enqueue, in an order that is drawn from a seed among all orders that
// streams and events allow.
//
// Thread-safety: every function may be called from any thread; mutex() guards everything, and work
// runs under it. The same seed gives the same order as long as the calls come in the same order.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ttrace::testing::fake {

using Work = std::function<void()>;

struct StreamKey {
  int device = 0;
  std::int64_t index = 0;  // 0 is the device's default stream

  auto operator<=>(const StreamKey&) const = default;
};

enum class Policy {
  kSeeded,  // some work runs when something is enqueued, in bursts and pauses; all orders occur
  kLazy,    // work runs only when somebody waits, and only what that wait needs
  kEager,   // work runs as soon as it may
};

// The thread that opens a gate. A wait that only the waiting thread could end is a deadlock.
enum class Opener { kThisThread, kOtherThread };

// Becomes true once: an event that was recorded, or a gate.
struct Signal {
  bool done = false;
  bool opened_elsewhere = false;  // a gate that another host thread opens
  bool captured = false;          // recorded by a stream that captured, so never done
  int queries = 0;
  std::shared_ptr<const StreamKey> setter;  // the queue that sets it; null for a gate
  std::string name;
};
using SignalRef = std::shared_ptr<Signal>;

// What a stream enqueued while it captured, in order.
using Graph = std::shared_ptr<const std::vector<Work>>;

// Which waits of the host end a capture: those of all threads, or of the thread that began it.
// Threads that are kRelaxed themselves end none.
enum class CaptureMode { kGlobal, kThreadLocal, kRelaxed };

struct Counters {
  std::size_t work = 0;          // enqueued, replayed graphs counted once
  std::size_t device_waits = 0;  // the host waited for all streams of a device
  std::size_t stream_waits = 0;  // or for one stream; blocking copies included
  std::size_t event_waits = 0;
  std::size_t other_waits = 0;  // of operators that wait here and would not on a real device
  std::size_t device_copies = 0, device_bytes = 0;  // from device to device
  std::size_t read_copies = 0, read_bytes = 0;      // from device to host
  std::size_t write_copies = 0, write_bytes = 0;    // from host to device
};

// A wait that cannot end; the message names the streams and what they wait for.
struct Deadlock : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something that a capturing stream forbids.
struct CaptureError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Executor {
 public:
  // Drops pending work and captures, sets all counters to zero and starts the seed's order. Gates
  // and events of before count as done.
  void reset(std::uint64_t seed, Policy policy);

  [[nodiscard]] std::recursive_mutex& mutex() { return mutex_; }
  [[nodiscard]] Counters counters() const;
  void count(const std::function<void(Counters&)>& change);

  // `name` is for error messages. What `work` throws is thrown by the next wait of the host.
  void enqueue(StreamKey stream, std::string name, Work work);
  [[nodiscard]] SignalRef record(StreamKey stream);
  // The stream goes on only after the signal. A null signal was never recorded and blocks nothing.
  void block(StreamKey stream, const SignalRef& signal);

  // A gate: block() a stream on it, and open it from the host or from another stream.
  [[nodiscard]] static SignalRef make_gate(std::string name, Opener opener);
  void open(const SignalRef& gate);
  void open_on(StreamKey stream, const SignalRef& gate);

  // Do not wait. Asking lets time pass, so that a loop of queries ends.
  [[nodiscard]] bool query(const SignalRef& signal);
  [[nodiscard]] bool query_stream(StreamKey stream);
  // The same without letting time pass.
  [[nodiscard]] bool is_done(const SignalRef& signal) const;
  [[nodiscard]] bool idle() const;  // nothing is pending on any stream

  // Throw Deadlock if the wait cannot end, CaptureError while a stream captures, and what work
  // threw.
  void wait_event(const SignalRef& signal);
  void wait_stream(StreamKey stream);
  void wait_device(int device);
  // Waits for the stream on behalf of an operator; counted as other_waits.
  void wait_for_operator(StreamKey stream);

  // One capture at a time. A stream that waits for an event of the capture joins it. end_capture()
  // throws CaptureError if something forbidden happened since.
  void begin_capture(StreamKey stream, CaptureMode mode = CaptureMode::kGlobal);
  [[nodiscard]] Graph end_capture(StreamKey stream);
  [[nodiscard]] bool capturing(StreamKey stream) const;
  // 0 if the stream does not capture, and otherwise a number of that capture alone.
  [[nodiscard]] std::int64_t capture_of(StreamKey stream) const;
  [[nodiscard]] bool any_capture() const;
  void replay(const Graph& graph, StreamKey stream);
  // Sets the calling thread's mode and returns the one before. Threads begin with kGlobal.
  static CaptureMode exchange_thread_mode(CaptureMode mode);

 private:
  struct Item {
    std::string name;
    Work work;        // may be empty
    SignalRef needs;  // may be null
    SignalRef sets;   // may be null
  };
  struct Queue {
    std::shared_ptr<const StreamKey> key;
    std::deque<Item> items;
    bool sluggish = false;  // other streams go first, for a while
    [[nodiscard]] bool runnable() const;
  };
  struct Capture {
    StreamKey origin;
    CaptureMode mode = CaptureMode::kGlobal;
    std::thread::id owner;
    std::set<StreamKey> streams;
    std::vector<Work> work;
    std::string broken_by;  // empty while it is valid
    std::int64_t number = 0;
  };
  // What a wait depends on: queues that can go on, and queues that stand still.
  struct Needs {
    std::set<const Queue*> visited;
    std::vector<Queue*> runnable;
    std::vector<const Queue*> stuck;
  };

  Queue& queue(StreamKey stream);
  void push(StreamKey stream, Item item);
  void advance();
  void change_mood();
  std::vector<Queue*> runnable_queues();
  Queue& pick(const std::vector<Queue*>& queues);
  void run_head(Queue& queue);
  void collect(const SignalRef& signal, Needs& needs);
  void wait(std::unique_lock<std::recursive_mutex>& lock, const std::vector<SignalRef>& signals);
  void wait_for_other_threads(std::unique_lock<std::recursive_mutex>& lock, const Needs& needs);
  void refuse_in_capture(const std::string& what, const std::set<StreamKey>& awaited);
  [[noreturn]] void break_capture(const std::string& what);

  mutable std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  std::map<StreamKey, Queue> queues_;
  std::unique_ptr<Capture> capture_;
  std::int64_t captures_ = 0;
  Counters counters_;
  Policy policy_ = Policy::kSeeded;
  std::mt19937_64 random_;
  std::size_t appetite_ = 0;  // how much runs when something is enqueued, at most
  bool running_ = false;
  std::exception_ptr failure_;
};

// "fake:0 stream 3"
[[nodiscard]] std::string describe(StreamKey stream);

}  // namespace ttrace::testing::fake
