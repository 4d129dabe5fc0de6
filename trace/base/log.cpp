#include <ttrace/log.h>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

std::optional<LogLevel> parse_level(std::string_view name) {
  if (name == "debug") {
    return LogLevel::kDebug;
  }
  if (name == "info") {
    return LogLevel::kInfo;
  }
  if (name == "warning") {
    return LogLevel::kWarning;
  }
  if (name == "error") {
    return LogLevel::kError;
  }
  return std::nullopt;
}

spdlog::logger* make_logger() {
  // The logger stays out of spdlog's registry, because the program may have its own loggers and
  // patterns there.
  auto logger = std::make_unique<spdlog::logger>(
      "ttrace", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("[ttrace] [%^%l%$] %v");
  logger->flush_on(spdlog::level::debug);
  logger->set_level(spdlog::level::warn);
  if (const char* wanted = std::getenv("TTRACE_LOG")) {
    if (const auto level = parse_level(wanted)) {
      logger->set_level(to_spdlog(*level));
    } else {
      logger->warn(
          "TTRACE_LOG is '{}'; set it to debug, info, warning or error; until then it means "
          "warning",
          wanted);
    }
  }
  return logger.release();
}

spdlog::logger& logger() {
  // Never destroyed, so that destructors of other static objects can still log.
  static spdlog::logger* const instance = make_logger();
  return *instance;
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  logger().log(to_spdlog(level), "{}", message);
}

void set_log_level(LogLevel level) {
  logger().set_level(to_spdlog(level));
}

}  // namespace ttrace
