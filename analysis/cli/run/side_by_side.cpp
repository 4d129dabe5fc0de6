#include "analysis/cli/run/side_by_side.h"

#include "analysis/align/machine.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process_tree.h"
#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <iostream>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace ttrace::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr double kSpare = 1.1;  // a run may need a little more memory than the last one
constexpr int kNoFiles = 2;     // the exit code where a task's files cannot be opened

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of a new process: it takes the place of a standard stream. False where that fails.
bool becomes(int stream, const std::string& file, int flags) {
  const int opened = open(file.c_str(), flags | O_CLOEXEC, 0644);
  return opened >= 0 && dup2(opened, stream) >= 0;
}

[[noreturn]] void begin(const Task& what, pid_t parent) {
  // A group of its own: Ctrl-C on a terminal comes to us alone, and we hand it on.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
  int code = kNoFiles;
  if (getppid() == parent && becomes(STDIN_FILENO, "/dev/null", O_RDONLY) &&
      becomes(STDOUT_FILENO, what.output, kNew) && becomes(STDERR_FILENO, what.errors, kNew)) {
    code = what.work();
  }
  std::cout.flush();
  _exit(code);
}

class Child {
 public:
  Child(std::size_t task, const Task& what) : task_(task), start_(Clock::now()), memory_(start_) {
    std::cout.flush();  // or the child writes it, too
    const pid_t self = getpid();
    pid_ = fork();
    TTRACE_CHECK(pid_ >= 0,
                 UsageError,
                 "cannot start a process for ",
                 what.name,
                 ": ",
                 system_error_text(errno));
    if (pid_ == 0) {
      begin(what, self);
    }
    setpgid(pid_, pid_);  // in both, whichever comes first
  }

  [[nodiscard]] std::size_t task() const { return task_; }
  [[nodiscard]] std::uint64_t now() const { return memory_.now(); }
  void signal(int number) const { kill(pid_, number); }

  void sample_memory() { memory_.sample(pid_); }

  [[nodiscard]] std::optional<TaskEnd> ended() const {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) {
      return std::nullopt;
    }
    return TaskEnd{.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                   .seconds = seconds_since(start_),
                   .memory = memory_.most()};
  }

 private:
  std::size_t task_;
  pid_t pid_ = -1;
  Clock::time_point start_;
  TreeMemory memory_;
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

std::function<int()> this_program(std::vector<std::string> arguments) {
  return [arguments = std::move(arguments)] {
    std::vector<std::string> words{"/proc/self/exe"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    std::cerr << "ttrace: error: cannot start itself: " << system_error_text(errno) << '\n';
    return 2;
  };
}

std::size_t default_at_a_time(const Manifest& manifest, unsigned processes) {
  return runs_on_accelerator(manifest)
             ? 1
             : std::max(1U, std::thread::hardware_concurrency() / processes);
}

void run_side_by_side(const std::vector<Task>& tasks, const SideBySide& how) {
  Scheduler(tasks, how).run();
}

}  // namespace ttrace::cli
