#include "analysis/cli/run/run_directory.h"

#include "trace/base/durable_file.h"
#include "trace/base/parse_integer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  TTRACE_CHECK(
      !error, UsageError, "cannot create the folder ", path.string(), ": ", error.message());
}

[[noreturn]] void refuse_used(const std::string& path) {
  TTRACE_THROW(UsageError, path, " is not empty; choose another folder for -o, or remove it");
}

// Of checks that begin in one empty folder at the same moment, one makes its folder of logs, and
// the others find it there: the file system decides, also one without locks.
void take(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directory(path + "/logs", error);
  TTRACE_CHECK(!error, UsageError, "cannot create the folder ", path, "/logs: ", error.message());
  if (!made) {
    refuse_used(path);
  }
}

// The highest number among the names in `folder`; 0 if there is none.
int last_number(const fs::path& folder) {
  int last = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    last = std::max(last, parse_number<int>(entry.path().filename().string()).value_or(0));
  }
  return last;
}

std::string next_free() {
  const fs::path runs = "runs";
  make_folder(runs);
  for (int number = last_number(runs) + 1;; ++number) {
    const fs::path path = runs / std::to_string(number);
    std::error_code error;
    if (fs::create_directory(path, error)) {  // false where another check was faster
      return path.string();
    }
    TTRACE_CHECK(
        !error, UsageError, "cannot create the folder ", path.string(), ": ", error.message());
  }
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

}  // namespace

RunDirectory RunDirectory::planned(const std::string& path) {
  TTRACE_CHECK(!path.empty(),
               UsageError,
               "-o is missing, but jobs need a folder that all of them see; pass -o FOLDER");
  return RunDirectory(without_last_slashes(path));
}

RunDirectory RunDirectory::create(const std::string& path) {
  std::string chosen = without_last_slashes(path);
  if (path.empty()) {
    chosen = next_free();
  } else {
    std::error_code error;
    if (fs::exists(chosen, error) &&
        !(fs::is_directory(chosen, error) && fs::is_empty(chosen, error))) {
      refuse_used(chosen);
    }
    make_folder(chosen);
  }
  take(chosen);
  return RunDirectory(chosen);
}

void RunDirectory::use_stored(const std::string& folder, const std::string& trace) const {
  make_folder(fs::path(folder).parent_path());
  std::error_code error;
  // Relative, so that both folders may move together.
  fs::create_directory_symlink(
      fs::relative(fs::canonical(trace), fs::canonical(fs::path(folder).parent_path())),
      folder,
      error);
  TTRACE_CHECK(
      !error, UsageError, fmt::format("cannot link {} to {}: {}", folder, trace, error.message()));
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  replace_file(path_ + "/" + name, text);
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  errno = 0;
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  TTRACE_CHECK(out, FormatError, "cannot write ", temporary, ": ", system_error_text(errno));
  std::error_code error;
  fs::rename(temporary, path, error);
  TTRACE_CHECK(!error,
               FormatError,
               fmt::format("cannot rename {} to {}: {}", temporary, path, error.message()));
}

std::uintmax_t RunDirectory::size() const {
  std::uintmax_t bytes = 0;
  std::error_code gone;
  for (fs::recursive_directory_iterator entry(path_, gone), last; !gone && entry != last;
       entry.increment(gone)) {
    std::error_code vanished;
    if (entry->is_regular_file(vanished)) {
      const std::uintmax_t size = entry->file_size(vanished);
      bytes += vanished ? 0 : size;
    }
  }
  return bytes;
}

std::string settled_placements(const std::string& run) {
  return run + "/settled.json";
}

std::string rerouted_reference(const std::string& run) {
  return run + "/rerouted";
}

std::string forced_wide(const std::string& run) {
  return run + "/forced-wide";
}

std::string forced_native(const std::string& run) {
  return run + "/forced-native";
}

std::string golden_pass(const std::string& run) {
  return run + "/golden";
}

std::string reference_names(const std::string& run) {
  return run + "/reference-names";
}

bool is_run_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path + "/reference", error) &&
         fs::is_directory(path + "/candidate", error);
}

}  // namespace ttrace::cli
