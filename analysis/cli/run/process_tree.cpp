#include "analysis/cli/run/process_tree.h"

#include "trace/base/parse_integer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>

namespace ttrace::cli {
namespace {

constexpr std::chrono::milliseconds kSampleMemory{200};

// What a process calls itself that later passes go on from (python/ttrace/_keeper.py).
constexpr std::string_view kKeeper = "ttrace-keeper";

// Parent of a living process; nothing if it is gone or a zombie, or a keeper.
std::optional<pid_t> parent_of(const std::filesystem::path& proc_directory) {
  std::ifstream file(proc_directory / "stat");
  // getline, because an iterator throws where the process ends between opening and reading.
  std::string text;
  std::getline(file, text, '\0');
  // "pid (any name, brackets too) state ppid ...": the last bracket ends the name.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || text.size() < name_end + 5 ||
      std::string_view(text).substr(0, name_end).ends_with(kKeeper)) {
    return std::nullopt;
  }
  const char state = text[name_end + 2];
  pid_t parent = 0;
  const char* begin = text.data() + name_end + 4;
  if (state == 'Z' || state == 'X' ||
      std::from_chars(begin, text.data() + text.size(), parent).ec != std::errc{}) {
    return std::nullopt;
  }
  return parent;
}

// The number of kB that a line "KEY: N kB" of the file says; 0 if there is none.
std::uint64_t kilobytes_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const std::size_t first = line.find_first_of("0123456789");
      std::uint64_t value = 0;
      if (first != std::string::npos) {
        std::from_chars(line.data() + first, line.data() + line.size(), value);
      }
      return value;
    }
  }
  return 0;
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc", gone), last; !gone && entry != last;
       entry.increment(gone)) {
    const auto pid = parse_number<pid_t>(entry->path().filename().string());
    if (const auto parent = pid ? parent_of(entry->path()) : std::nullopt) {
      children.emplace(*parent, *pid);
    }
  }
  std::vector<pid_t> found;
  const auto add_children_of = [&](pid_t parent) {
    for (auto [child, last] = children.equal_range(parent); child != last; ++child) {
      found.push_back(child->second);
    }
  };
  add_children_of(root);
  for (std::size_t i = 0; i < found.size(); ++i) {
    add_children_of(found[i]);
  }
  return found;
}

std::uint64_t memory_of_tree(pid_t root) {
  std::uint64_t kilobytes = kilobytes_in(fmt::format("/proc/{}/smaps_rollup", root), "Pss:");
  for (const pid_t pid : descendants_of(root)) {
    kilobytes += kilobytes_in(fmt::format("/proc/{}/smaps_rollup", pid), "Pss:");
  }
  return kilobytes * 1024;
}

void TreeMemory::sample(pid_t root) {
  if (const auto now = std::chrono::steady_clock::now(); now - sampled_ > kSampleMemory) {
    sampled_ = now;
    now_ = memory_of_tree(root);
    most_ = std::max(most_, now_);
  }
}

std::uint64_t available_memory() {
  return kilobytes_in("/proc/meminfo", "MemAvailable:") * 1024;
}

}  // namespace ttrace::cli
