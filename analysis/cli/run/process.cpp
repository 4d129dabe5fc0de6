#include "analysis/cli/run/process.h"

#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process_tree.h"
#include "trace/base/durable_file.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/core.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ttrace::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollProcess{5};
constexpr std::chrono::seconds kGiveUp{10};  // after SIGKILL

FileDescriptor opened(const std::string& path, int flags) {
  FileDescriptor descriptor(open(path.c_str(), flags, 0644));
  TTRACE_CHECK(
      descriptor.valid(), UsageError, "cannot open ", path, ": ", system_error_text(errno));
  return descriptor;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& string : strings) {
    result.push_back(const_cast<char*>(string.c_str()));  // execve does not write to them
  }
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void become(char** argv, char** envp, int input, int output, pid_t parent) {
  setpgid(0, 0);
  // Should we be killed ourselves, at least mpirun hears of it.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const bool is_ours = output < 0;
  if (getppid() == parent && dup2(input, 0) >= 0 &&
      (is_ours || (dup2(output, 1) >= 0 && dup2(output, 2) >= 0))) {
    execve(argv[0], argv, envp);
  }
  _exit(127);
}

}  // namespace

Program::Program(const Launch& launch) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const FileDescriptor input = opened("/dev/null", O_RDONLY | O_CLOEXEC);
  // Appending, so that several writers do not overwrite each other.
  const FileDescriptor output =
      launch.log.empty() ? FileDescriptor(-1)
                         : opened(launch.log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC);
  const std::vector<std::string> arguments{"/bin/sh", "-c", launch.command};
  std::vector<char*> argv = pointers(arguments);
  std::vector<char*> envp = pointers(launch.environment);
  const pid_t self = getpid();
  pid_ = fork();
  TTRACE_CHECK(pid_ >= 0, UsageError, "cannot start a process: ", system_error_text(errno));
  if (pid_ == 0) {
    become(argv.data(), envp.data(), input.get(), output.get(), self);
  }
  setpgid(pid_, pid_);  // in both, whichever comes first
}

Program::~Program() {
  try {
    end(std::chrono::milliseconds(0));
  } catch (const std::exception& error) {
    log(LogLevel::kError, error.what());
  }
}

void Program::reap() {
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    if (pid == pid_) {
      status_ = status;
    }
  }
}

std::optional<int> Program::exit_status() {
  reap();
  return status_;
}

void Program::end(std::chrono::milliseconds grace) {
  end_all(
      [this] {
        reap();
        return descendants_of(getpid());
      },
      grace);
  reap();
}

void end_all(const std::function<std::vector<pid_t>()>& alive_now,
             std::chrono::milliseconds grace) {
  const auto start = Clock::now();
  std::set<pid_t> asked;
  for (;;) {
    const std::vector<pid_t> alive = alive_now();
    if (alive.empty()) {
      return;
    }
    const auto elapsed = Clock::now() - start;
    if (elapsed > grace + kGiveUp) {
      log(LogLevel::kWarning,
          fmt::format(
              "process {} still runs after SIGKILL; ttrace continues without waiting for it",
              alive.front()));
      return;
    }
    const bool kill_now = elapsed >= grace || interrupt_count() > 1;
    for (const pid_t pid : alive) {
      if (kill_now) {
        kill(pid, SIGKILL);
      } else if (asked.insert(pid).second) {
        kill(pid, SIGTERM);
      }
    }
    wait_or_interrupt(kPollProcess);
  }
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

std::string describe_exit(int wait_status) {
  const auto named = [](int signal) {
    return fmt::format("signal {} ({})", signal, strsignal(signal));
  };
  if (WIFSIGNALED(wait_status)) {
    return "was ended by " + named(WTERMSIG(wait_status));
  }
  const int code = WEXITSTATUS(wait_status);
  std::string text = fmt::format("exited with status {}", code);
  if (code == 127) {
    text += " (command not found)";
  } else if (code == 126) {
    text += " (command not executable)";
  } else if (code > 128 && code <= 128 + SIGRTMAX) {
    text += ", which is how a shell or launcher reports " + named(code - 128);
  }
  return text;
}

}  // namespace ttrace::cli
