#include <ttrace/log.h>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace ttrace {
namespace {

struct Level {
  LogLevel level;
  std::string_view name;  // in TTRACE_LOG
  spdlog::level::level_enum of_spdlog;
};

// A row stands at its level's number.
constexpr std::array kLevels = {Level{LogLevel::kDebug, "debug", spdlog::level::debug},
                                Level{LogLevel::kInfo, "info", spdlog::level::info},
                                Level{LogLevel::kWarning, "warning", spdlog::level::warn},
                                Level{LogLevel::kError, "error", spdlog::level::err}};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  return kLevels.at(static_cast<std::size_t>(level)).of_spdlog;
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
    const auto* const level = std::ranges::find(kLevels, std::string_view(wanted), &Level::name);
    if (level != kLevels.end()) {
      logger->set_level(level->of_spdlog);
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
