#include "trace/file/attendance.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

using nlohmann::json;

std::string folder_of(const std::string& directory) {
  return (fs::path(directory) / "ranks").string();
}

std::optional<std::int64_t> step_at(const json& root, const char* key) {
  return root.contains(key) ? std::optional(root.at(key).get<std::int64_t>()) : std::nullopt;
}

}  // namespace

std::string attendance_file(const std::string& directory, int rank) {
  std::array<char, 32> name = {};
  std::snprintf(name.data(), name.size(), "rank%05d.json", rank);
  return (fs::path(folder_of(directory)) / name.data()).string();
}

FileDescriptor claim_rank(const std::string& directory, int rank, int world_size) {
  const std::string file = attendance_file(directory, rank) + ".claim";
  TTRACE_CHECK(!is_being_written(temporary_name(file)),
               UsageError,
               "another process has already attached as rank ",
               rank,
               " of ",
               world_size,
               "; let every process attach with its own rank and the number of all ranks (in "
               "Python: call torch.distributed.init_process_group before ttrace.attach), or start "
               "one process");
  return open_temporary(file);
}

bool has_claims(const std::string& directory) {
  std::error_code error;
  return fs::is_directory(folder_of(directory), error);
}

void write_attendance(const std::string& directory, int rank, const Attendance& what) {
  json root = {{"format", "ttrace-attendance"}, {"version", 1}, {"awaited", what.awaited}};
  if (what.first && what.last) {
    root["first"] = *what.first;
    root["last"] = *what.last;
  }
  write_text_file(attendance_file(directory, rank), root.dump(2) + "\n");
}

std::optional<Attendance> read_attendance(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code gone;
  for (fs::directory_iterator entry(folder_of(directory), gone), last; !gone && entry != last;
       entry.increment(gone)) {
    if (entry->path().extension() == ".json") {
      files.push_back(entry->path().string());
    }
  }
  if (files.empty()) {
    return std::nullopt;
  }
  const std::string& file = *std::ranges::min_element(files);
  try {
    const json root = json::parse(read_text_file(file));
    return Attendance{.awaited = root.at("awaited").get<std::int64_t>(),
                      .first = step_at(root, "first"),
                      .last = step_at(root, "last")};
  } catch (const json::exception& error) {
    TTRACE_THROW(FormatError,
                 file,
                 ": this file does not say which iterations began: ",
                 error.what(),
                 "; remove the folder and run the pass again");
  }
}

}  // namespace ttrace
