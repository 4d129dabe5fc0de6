#include "end_to_end/small_run.h"

#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <cstddef>
#include <filesystem>
#include <utility>

namespace ttrace::testing {
namespace {

ConfigChanges small(const ConfigChanges& changes) {
  ConfigChanges all = {{"model.hidden", "32"},
                       {"model.heads", "4"},
                       {"model.query_groups", "2"},
                       {"model.ffn", "32"},
                       {"model.sequence", "16"},
                       {"data.micro_batch_size", "2"},
                       {"data.micro_batches", "2"}};
  for (const auto& [key, value] : changes) {
    all[key] = value;
  }
  return all;
}

}  // namespace

SmallRun::SmallRun(const ConfigChanges& changes, std::string precision, int steps)
    : training_{
          .config = folder_ / "config.yaml", .precision = std::move(precision), .steps = steps} {
  write_derived_config(example("tiny"), small(changes), training_.config);
}

std::string SmallRun::reference() const {
  return reference_of(training_);
}

std::string SmallRun::candidate(const std::string& layout) const {
  return candidate_of(training_, layout);
}

ProcessResult SmallRun::check(const std::string& name,
                              const std::string& layout,
                              const std::vector<std::string>& options) const {
  std::vector<std::string> arguments = {"check",
                                        "--reference",
                                        reference(),
                                        "--candidate",
                                        candidate(layout),
                                        "--steps",
                                        "0:" + std::to_string(training_.steps),
                                        "--noise",
                                        "2",
                                        "-o",
                                        folder(name)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return ttrace_program(arguments);
}

ProcessResult SmallRun::check_again(const std::string& name,
                                    const std::string& layout,
                                    const std::string& stored) const {
  return ttrace_program({"check",
                         "--reference",
                         folder(stored) + "/reference",
                         "--candidate",
                         candidate(layout),
                         "-o",
                         folder(name)});
}

nlohmann::json SmallRun::report(const std::string& name) const {
  return nlohmann::json::parse(read_text(folder(name) + "/report.json"));
}

void change_signs(ElementType type, std::vector<std::byte>& bytes) {
  const std::size_t size = element_size(type);
  for (std::size_t last = size; last <= bytes.size(); last += size) {
    bytes[last - 1] ^= std::byte{0x80};  // little-endian
  }
}

void change_experts(ElementType type, std::vector<std::byte>& bytes) {
  constexpr int kExperts = 4;
  const std::size_t size = element_size(type);
  for (std::size_t first = 0; first < bytes.size(); first += size) {
    bytes[first] = static_cast<std::byte>((std::to_integer<int>(bytes[first]) + 1) % kExperts);
  }
}

void copy_with(const Change& change,
               int rank,
               const std::string& id,
               const std::string& trace,
               const std::string& copy) {
  std::filesystem::copy(trace, copy, std::filesystem::copy_options::recursive);
  std::filesystem::remove(step_file(copy, 0, rank));
  const RankFile file(step_file(trace, 0, rank));
  TraceWriter writer(step_file(copy, 0, rank), file.layout());
  for (const Record& record : file.records()) {
    const auto kept = file.bytes(record);
    std::vector<std::byte> bytes(kept.begin(), kept.end());
    if (to_string(record.id) == id) {
      change(record.type, bytes);
    }
    writer.append(record, bytes);
  }
  for (const std::string& note : file.notes()) {
    writer.note(note);
  }
  writer.commit();
}

}  // namespace ttrace::testing
