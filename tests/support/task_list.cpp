#include "support/task_list.h"

#include <ttrace/error.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace ttrace::testing {
namespace {

class TaskList {
 public:
  explicit TaskList(const std::vector<Task>& tasks) : tasks_(tasks), states_(tasks.size()) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      TTRACE_CHECK(!tasks[i].after || *tasks[i].after < i,
                   InternalError,
                   "task ",
                   i,
                   " waits for one that is not before it");
    }
  }

  // Works until nothing is left to start.
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      const std::optional<std::size_t> task = next();
      if (task) {
        states_[*task] = State::kRunning;
        lock.unlock();
        std::exception_ptr failure = run(*task);
        lock.lock();
        states_[*task] = State::kDone;
        failure_ = failure_ ? failure_ : failure;
        changed_.notify_all();
      } else if (failure_ || !any_waiting()) {
        return;
      } else {
        changed_.wait(lock);
      }
    }
  }

  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  enum class State : char { kWaiting, kRunning, kDone };

  [[nodiscard]] std::exception_ptr run(std::size_t task) const {
    try {
      tasks_[task].work();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }
  [[nodiscard]] std::optional<std::size_t> next() const {
    for (std::size_t i = 0; i < tasks_.size() && !failure_; ++i) {
      const auto& after = tasks_[i].after;
      if (states_[i] == State::kWaiting && (!after || states_[*after] == State::kDone)) {
        return i;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] bool any_waiting() const {
    for (const State state : states_) {
      if (state == State::kWaiting) {
        return true;
      }
    }
    return false;
  }

  const std::vector<Task>& tasks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<State> states_;
  std::exception_ptr failure_;
};

}  // namespace

void run_tasks(const std::vector<Task>& tasks, int threads) {
  TaskList list(tasks);
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&list] { list.work(); });
  }
  list.work();
  for (std::thread& thread : others) {
    thread.join();
  }
  list.rethrow();
}

}  // namespace ttrace::testing
