#include "trace/file/capture_counts.h"

#include "trace/base/durable_file.h"
#include "trace/base/parse_integer.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace ttrace {
namespace {

using nlohmann::json;

constexpr const char* kCountsFormatName = "ttrace-counts";

json json_of(const TensorCount& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}};
}

TensorCount count_of(const json& value) {
  return {value.at("tensors").get<std::uint64_t>(), value.at("bytes").get<std::uint64_t>()};
}

std::int64_t step_of(const std::string& text) {
  const auto step = parse_number<std::int64_t>(text);
  TTRACE_CHECK(step.has_value(), FormatError, "'", text, "' is not a step");
  return *step;
}

CaptureCounts parse(const json& root) {
  TTRACE_CHECK(root.at("format") == kCountsFormatName && root.at("version") == 1,
               FormatError,
               "its format and version are not ",
               kCountsFormatName,
               " and 1");
  CaptureCounts counts;
  counts.rank = root.at("rank").get<int>();
  counts.world_size = root.at("world_size").get<int>();
  counts.start = count_of(root.at("start"));
  for (const auto& [step, kinds] : root.at("steps").items()) {
    auto& counted = counts.steps[step_of(step)];
    for (const auto& [kind, count] : kinds.items()) {
      counted[parse_kind(kind)] = count_of(count);
    }
  }
  return counts;
}

CaptureCounts read_file(const std::string& path) {
  std::ifstream input(path, std::ios::binary);
  TTRACE_CHECK(input.is_open(),
               FormatError,
               path,
               ": the file cannot be opened: ",
               system_error_text(errno));
  const std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  std::string complaint;
  try {
    return parse(json::parse(text));
  } catch (const Error& error) {
    complaint = error.message();
  } catch (const json::exception& error) {
    complaint = error.what();
  }
  TTRACE_THROW(FormatError,
               path,
               ": this file does not count a capture: ",
               complaint,
               "; remove the folder and run the pass again");
}

}  // namespace

TensorCount& TensorCount::operator+=(const TensorCount& other) {
  tensors += other.tensors;
  bytes += other.bytes;
  return *this;
}

TensorCount total(const CaptureCounts& counts) {
  TensorCount sum;
  for (const auto& [step, kinds] : counts.steps) {
    for (const auto& [kind, count] : kinds) {
      sum += count;
    }
  }
  return sum;
}

std::string counts_file(const std::string& directory, int rank) {
  std::array<char, 48> name = {};
  std::snprintf(name.data(), name.size(), "counts/rank%05d.json", rank);
  return (std::filesystem::path(directory) / name.data()).string();
}

void write_counts(const std::string& directory, const CaptureCounts& counts) {
  json steps = json::object();
  for (const auto& [step, kinds] : counts.steps) {
    json& counted = steps[std::to_string(step)] = json::object();
    for (const auto& [kind, count] : kinds) {
      counted[std::string(name_of(kind))] = json_of(count);
    }
  }
  const json root = {{"format", kCountsFormatName},
                     {"version", 1},
                     {"rank", counts.rank},
                     {"world_size", counts.world_size},
                     {"start", json_of(counts.start)},
                     {"steps", steps}};
  write_text_file(counts_file(directory, counts.rank), root.dump(2) + "\n");
}

std::vector<CaptureCounts> read_counts(const std::string& directory) {
  std::vector<CaptureCounts> ranks{read_file(counts_file(directory, 0))};
  for (int rank = 1; rank < ranks.front().world_size; ++rank) {
    ranks.push_back(read_file(counts_file(directory, rank)));
  }
  return ranks;
}

bool counts_are_complete(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::exists(counts_file(directory, 0), error)) {
    return false;
  }
  const int world_size = read_file(counts_file(directory, 0)).world_size;
  for (int rank = 1; rank < world_size; ++rank) {
    if (!std::filesystem::exists(counts_file(directory, rank), error)) {
      return false;
    }
  }
  return true;
}

}  // namespace ttrace
