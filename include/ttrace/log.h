// One log for the library and the program, on stderr, never on stdout.
//
// Thread-safety: call from any thread.
#pragma once

#include <ttrace/export.h>

#include <string>

namespace ttrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

TTRACE_API void log(LogLevel level, const std::string& message);

// Messages below `level` are dropped. Default: kWarning, or TTRACE_LOG=debug|info|warning|error.
TTRACE_API void set_log_level(LogLevel level);

}  // namespace ttrace
