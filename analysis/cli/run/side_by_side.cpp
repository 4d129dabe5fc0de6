#include "analysis/cli/run/side_by_side.h"

#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process_tree.h"
#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ttrace::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::milliseconds kSampleMemory{500};
constexpr double kSpare = 1.1;  // a run may need a little more memory than the last one

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// This program with other arguments.
class Child {
 public:
  Child(std::size_t task, const Task& what) : task_(task), start_(Clock::now()), sampled_(start_) {
    std::vector<std::string> words{"/proc/self/exe"};
    words.insert(words.end(), what.arguments.begin(), what.arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, what.output.c_str(), kNew, 0644);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, what.errors.c_str(), kNew, 0644);
    // A group of its own: Ctrl-C on a terminal comes to us alone, and we hand it on.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    TTRACE_CHECK(error == 0,
                 UsageError,
                 "cannot start the check of ",
                 what.name,
                 ", which writes ",
                 what.output,
                 ": ",
                 system_error_text(error));
  }

  [[nodiscard]] std::size_t task() const { return task_; }
  [[nodiscard]] std::uint64_t memory() const { return memory_; }
  [[nodiscard]] std::uint64_t now() const { return now_; }
  void signal(int number) const { kill(pid_, number); }

  void sample_memory() {
    if (Clock::now() - sampled_ > kSampleMemory) {
      sampled_ = Clock::now();
      now_ = memory_of_tree(pid_);
      memory_ = std::max(memory_, now_);
    }
  }

  [[nodiscard]] std::optional<TaskEnd> ended() const {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) {
      return std::nullopt;
    }
    return TaskEnd{.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                   .seconds = seconds_since(start_),
                   .memory = memory_};
  }

 private:
  std::size_t task_;
  pid_t pid_ = -1;
  Clock::time_point start_;
  Clock::time_point sampled_;
  std::uint64_t memory_ = 0;
  std::uint64_t now_ = 0;
};

class Scheduler {
 public:
  Scheduler(const std::vector<Task>& tasks, const SideBySide& how) : tasks_(tasks), how_(how) {}

  void run() {
    while (next_ < tasks_.size() || !running_.empty()) {
      if (interrupt_signal() != 0) {
        end_all();
        throw Interrupted{interrupt_signal()};
      }
      begin_more();
      look_after();
      wait_or_interrupt(kPoll);
    }
  }

 private:
  void begin_more() {
    while (next_ < tasks_.size() && running_.size() < how_.at_a_time) {
      if (how_.wanted && !how_.wanted(next_)) {
        ++next_;
        continue;
      }
      if (!fits(tasks_[next_])) {
        return;
      }
      running_.emplace_back(next_, tasks_[next_]);
      ++next_;
    }
  }

  // Together with those that run. What they still may take is not available.
  bool fits(const Task& task) const {
    if (running_.empty()) {
      return true;
    }
    double needed = kSpare * static_cast<double>(task.memory);
    bool all_known = task.memory > 0;
    for (const Child& child : running_) {
      const double most = kSpare * static_cast<double>(tasks_[child.task()].memory);
      all_known = all_known && most > 0.0;
      needed += std::max(0.0, most - static_cast<double>(child.now()));
    }
    return all_known && needed <= static_cast<double>(available_memory());
  }

  void look_after() {
    std::string names;
    for (auto child = running_.begin(); child != running_.end();) {
      child->sample_memory();
      if (const auto end = child->ended()) {
        how_.ended(child->task(), *end);
        child = running_.erase(child);
        continue;
      }
      names += (names.empty() ? "" : ", ") + tasks_[child->task()].name;
      ++child;
    }
    if (how_.tick && !names.empty()) {
      how_.tick(names, seconds_since(start_));
    }
  }

  // Each check ends all that it started, at once after a second interrupt.
  void end_all() {
    for (int told = 0; !running_.empty();) {
      if (const int interrupts = interrupt_count(); told < interrupts) {
        told = interrupts;
        for (const Child& child : running_) {
          child.signal(SIGTERM);
        }
      }
      std::erase_if(running_, [](const Child& child) { return child.ended().has_value(); });
      wait_or_interrupt(kPoll);
    }
  }

  const std::vector<Task>& tasks_;
  const SideBySide& how_;
  std::vector<Child> running_;
  std::size_t next_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

void run_side_by_side(const std::vector<Task>& tasks, const SideBySide& how) {
  Scheduler(tasks, how).run();
}

}  // namespace ttrace::cli
