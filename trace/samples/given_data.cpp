#include "trace/samples/given_data.h"

#include "trace/base/kind.h"

#include <algorithm>
#include <limits>

namespace ttrace {

std::set<std::string> modules_with_inputs(std::span<const RankFile> files) {
  std::set<std::string> paths;
  for (const RankFile& file : files) {
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kInput) {
        paths.insert(record.id.path);
      }
    }
  }
  return paths;
}

std::map<std::int64_t, std::string> outermost_modules(const RankFile& file,
                                                      const std::set<std::string>& others) {
  struct First {
    std::uint64_t input = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t output = std::numeric_limits<std::uint64_t>::max();
    std::string path;
  };
  std::map<std::int64_t, First> first;
  for (const Record& record : file.records()) {
    First& of = first[record.id.microbatch];
    if (record.id.kind == Kind::kInput && record.order < of.input &&
        others.contains(record.id.path)) {
      of.input = record.order;
      of.path = record.id.path;
    } else if (record.id.kind == Kind::kOutput) {
      of.output = std::min(of.output, record.order);
    }
  }
  std::map<std::int64_t, std::string> paths;
  for (const auto& [microbatch, of] : first) {
    if (of.input < of.output) {
      paths.emplace(microbatch, of.path);
    }
  }
  return paths;
}

std::set<TensorId> given_inputs(const Trace& trace, const Trace& other) {
  std::set<std::string> others;
  for (const StepTrace& step : other.steps()) {
    others.merge(modules_with_inputs(step.ranks));
  }
  std::set<TensorId> given;
  for (const RankFile& file : trace.files()) {
    const std::map<std::int64_t, std::string> outermost = outermost_modules(file, others);
    for (const Record& record : file.records()) {
      const auto found = outermost.find(record.id.microbatch);
      if (record.id.kind == Kind::kInput && found != outermost.end() &&
          found->second == record.id.path) {
        given.insert(record.id);
      }
    }
  }
  return given;
}

}  // namespace ttrace
