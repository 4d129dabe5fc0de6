#include <ttrace/error.h>

#include <string>
#include <string_view>

namespace ttrace {
namespace {

// __FILE__ is absolute under CMake. This file knows its own place, hence the root of the sources.
std::string_view relative_to_sources(std::string_view file) {
  constexpr std::string_view kThisFile = "trace/base/error.cpp";
  std::string_view root = __FILE__;
  if (!root.ends_with(kThisFile)) {
    return file;
  }
  root.remove_suffix(kThisFile.size());
  if (file.starts_with(root)) {
    file.remove_prefix(root.size());
  }
  return file;
}

std::string with_place(const std::string& message, std::string_view file, int line) {
  return message + " [" + std::string(relative_to_sources(file)) + ":" + std::to_string(line) + "]";
}

}  // namespace

Error::Error(const std::string& message, const char* file, int line)
    : std::runtime_error(with_place(message, file, line)), message_(message) {}

}  // namespace ttrace
