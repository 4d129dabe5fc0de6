// One log for the library and the program. It goes to stderr, never to stdout.
//
//   ttrace::log(ttrace::LogLevel::kWarning, "the learning rate is 0");
//
// Thread-safety: any thread may call these functions.
#pragma once

#include <string>

namespace ttrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Writes one line, unless `level` is below the current one. Does not throw.
void log(LogLevel level, const std::string& message);

// From now on messages below `level` are dropped. Without a call the level is kWarning, or what
// TTRACE_LOG=debug|info|warning|error says.
void set_log_level(LogLevel level);

}  // namespace ttrace
