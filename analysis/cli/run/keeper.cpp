#include "analysis/cli/run/keeper.h"

#include "analysis/cli/run/process_tree.h"
#include "trace/base/durable_file.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace ttrace::cli {
namespace {

// `variable`: "PID:FOLDER".
FileDescriptor connect_to(const std::string& variable) {
  const std::string path = variable.substr(variable.find(':') + 1) + "/keeper";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection.valid() || path.size() >= sizeof(address.sun_path)) {
    return {};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  return connect(connection.get(), name, sizeof(address)) == 0 ? std::move(connection)
                                                               : FileDescriptor();
}

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool send_text(int connection, const std::string& text) {
  const auto size = static_cast<std::int32_t>(text.size());
  return send_all(connection, {reinterpret_cast<const char*>(&size), sizeof(size)}) &&
         send_all(connection, text);
}

// Nothing was received yet; a number; or nobody is there any more.
struct Received {
  bool ended = false;
  std::optional<std::int32_t> number = {};
};

Received receive(int connection, int flags) {
  std::int32_t number = 0;
  const ssize_t got = recv(connection, &number, sizeof(number), flags);
  if (got == sizeof(number)) {
    return {.number = number};
  }
  return {.ended = got >= 0 || (errno != EAGAIN && errno != EINTR)};
}

class KeptProgram : public Running {
 public:
  KeptProgram(FileDescriptor connection, pid_t pid)
      : connection_(std::move(connection)), pid_(pid) {}
  ~KeptProgram() override { end(std::chrono::milliseconds(0)); }

  std::optional<int> exit_status() override {
    if (!status_) {
      const Received answer = receive(connection_.get(), MSG_DONTWAIT);
      status_ = answer.ended ? SIGKILL : answer.number;  // a keeper that ends kills its programs
    }
    return status_;
  }

  void end(std::chrono::milliseconds grace) override {
    end_all(
        [this] {
          std::vector<pid_t> alive;
          if (!exit_status()) {
            alive = descendants_of(pid_);
            alive.insert(alive.begin(), pid_);
          }
          return alive;
        },
        grace);
    kill(-pid_, SIGKILL);  // what it left in its group
  }

 private:
  FileDescriptor connection_;
  pid_t pid_;
  std::optional<int> status_;
};

}  // namespace

KeeperPlace::KeeperPlace()
    : folder_("keeper"), variable_(fmt::format("{}:{}", getpid(), folder_.path())) {}

KeeperPlace::~KeeperPlace() {
  if (const FileDescriptor connection = connect_to(variable_); connection.valid()) {
    static_cast<void>(send_text(connection.get(), ""));
  }
}

std::unique_ptr<Running> go_on_from_keeper(const std::string& variable,
                                           const std::map<std::string, std::string>& variables,
                                           const std::string& log) {
  FileDescriptor connection = connect_to(variable);
  if (!connection.valid()) {
    return nullptr;
  }
  const nlohmann::json request = {{"log", std::filesystem::absolute(log).string()},
                                  {"variables", variables}};
  if (!send_text(connection.get(), request.dump())) {
    return nullptr;
  }
  const Received pid = receive(connection.get(), MSG_WAITALL);
  return pid.number ? std::make_unique<KeptProgram>(std::move(connection), *pid.number) : nullptr;
}

}  // namespace ttrace::cli
