// Warnings of a command.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <ttrace/log.h>

#include <string>
#include <vector>

namespace ttrace::cli {

// One warning on stderr for each.
inline void warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) {
    log(LogLevel::kWarning, sentence);
  }
}

}  // namespace ttrace::cli
