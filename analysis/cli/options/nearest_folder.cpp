#include "analysis/cli/options/nearest_folder.h"

#include "analysis/cli/options/command_line.h"
#include "trace/base/edit_distance.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), last; !gone && entry != last;
       entry.increment(gone)) {
    std::error_code vanished;
    if (entry->is_directory(vanished)) {
      names.push_back(entry->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

// A name of which more than half is another one is no slip of the fingers.
bool is_near(const std::string& name, const std::string& other) {
  return 2 * edit_distance(name, other) <= std::max(name.size(), other.size());
}

}  // namespace

bool is_missing_path(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '_' || c == '-';
  };
  std::error_code error;
  return text.find('/') != std::string::npos && std::ranges::all_of(text, is_plain) &&
         fs::status(text, error).type() == fs::file_type::not_found;
}

std::string nearest_folder(const std::string& path) {
  fs::path found;
  for (const fs::path& part : fs::path(path)) {
    std::error_code error;
    if (part.empty() || fs::is_directory(found / part, error)) {
      found /= part;
      continue;
    }
    const std::string name = part.string();
    const std::vector<std::string> known = folders_in(found.empty() ? fs::path(".") : found);
    const std::string other = known.empty() ? "" : nearest(name, known);
    if (!is_near(name, other)) {
      return "";
    }
    found /= other;
  }
  return found.string();
}

}  // namespace ttrace::cli
