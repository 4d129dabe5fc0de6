#include "support/run_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <pty.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace ttrace::testing {
namespace {

constexpr std::chrono::milliseconds kPoll{2};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& string : strings) {
    result.push_back(const_cast<char*>(string.c_str()));  // exec does not write to them
  }
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) {
      result.push_back(text);
    }
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) {
      result.push_back(std::string(name).append("=").append(value));
    }
  }
  return result;
}

[[noreturn]] void become(const std::string& directory, char** argv, char** envp, int out, int err) {
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, SIG_DFL);  // a test run in the background ignores SIGINT
  }
  const int in = open("/dev/null", O_RDONLY);
  const bool moved = directory.empty() || chdir(directory.c_str()) == 0;
  if (moved && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) {
    execvpe(argv[0], argv, envp);
  }
  _exit(127);
}

std::string text_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  std::array<char, 4096> buffer{};
  for (std::size_t count = 0; (count = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;) {
    text.append(buffer.data(), count);
  }
  return text;
}

}  // namespace

RunningProcess::RunningProcess(const ProcessOptions& options)
    : start_(std::chrono::steady_clock::now()),
      timeout_(options.timeout),
      out_(std::tmpfile(), &std::fclose),
      err_(std::tmpfile(), &std::fclose) {
  if (!out_ || !err_) {
    throw std::runtime_error("cannot create files for the output of a process");
  }
  for (std::FILE* file : {out_.get(), err_.get()}) {
    fcntl(fileno(file), F_SETFD, FD_CLOEXEC);
  }
  int slave = -1;
  if (options.terminal) {
    if (openpty(&terminal_, &slave, nullptr, nullptr, nullptr) != 0) {
      throw std::runtime_error("cannot create a pseudo-terminal");
    }
    fcntl(terminal_, F_SETFD, FD_CLOEXEC);
    fcntl(terminal_, F_SETFL, O_NONBLOCK);
    fcntl(slave, F_SETFD, FD_CLOEXEC);
  }
  const std::vector<std::string> environment = merged_environment(options.environment);
  std::vector<char*> argv = pointers(options.arguments);
  std::vector<char*> envp = pointers(environment);
  pid_ = fork();
  if (pid_ == 0) {
    become(options.directory,
           argv.data(),
           envp.data(),
           options.terminal ? slave : fileno(out_.get()),
           options.terminal ? slave : fileno(err_.get()));
  }
  if (slave >= 0) {
    close(slave);
  }
  if (pid_ < 0) {
    throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
  }
  setpgid(pid_, pid_);  // in both, whichever comes first
}

RunningProcess::~RunningProcess() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (terminal_ >= 0) {
    close(terminal_);
  }
}

bool RunningProcess::ended(int& status) const {
  return waitpid(pid_, &status, WNOHANG) == pid_;
}

void RunningProcess::drain_terminal() {
  if (terminal_ < 0) {
    return;
  }
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = read(terminal_, buffer.data(), buffer.size())) > 0;) {
    terminal_text_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

ProcessResult RunningProcess::wait() {
  ProcessResult result;
  int status = 0;
  while (!ended(status)) {
    drain_terminal();
    if (!result.timed_out && std::chrono::steady_clock::now() - start_ > timeout_) {
      result.timed_out = true;
      kill(-pid_, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  pid_ = -1;
  drain_terminal();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else {
    result.signal = WTERMSIG(status);
  }
  result.out = terminal_ >= 0 ? terminal_text_ : text_of(out_.get());
  result.err = text_of(err_.get());
  return result;
}

ProcessResult run_process(const ProcessOptions& options) {
  return RunningProcess(options).wait();
}

std::vector<std::string> processes_with(const std::string& word) {
  std::vector<std::string> found;
  const std::string self = std::to_string(getpid());
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc", gone), last; !gone && entry != last;
       entry.increment(gone)) {
    if (entry->path().filename() == self) {
      continue;
    }
    std::string line = read_text(entry->path() / "cmdline");  // empty for zombies
    std::replace(line.begin(), line.end(), '\0', ' ');
    if (line.find(word) != std::string::npos) {
      found.push_back(line);
    }
  }
  return found;
}

std::string read_text(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  // Through rdbuf, because an iterator throws where a process ends while its /proc file is read.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ttrace::testing
