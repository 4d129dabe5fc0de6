#include "analysis/cli/run/estimate.h"

#include "analysis/findings/wording.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <ostream>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

// Measured on the example configuration; ids of deep models are not much longer.
constexpr std::uintmax_t kRecordBytes = 450;      // index row, dataset header, alignment
constexpr std::uintmax_t kNoiseRowBytes = 100;    // of a noise table
constexpr std::uintmax_t kFileBytes = 1'050'000;  // HDF5 takes room for metadata in one block

std::uintmax_t on_disk(const TensorCount& count, std::size_t files) {
  return count.bytes + count.tensors * kRecordBytes + files * kFileBytes;
}

// A candidate has one file per step at least, as the reference has.
std::uintmax_t trace_bytes(const CaptureCounts& counts) {
  return on_disk(total(counts), counts.steps.size());
}

std::uintmax_t start_bytes(const CaptureCounts& counts) {
  return counts.start.tensors == 0 ? 0 : on_disk(counts.start, 1);
}

std::uintmax_t noise_pass_bytes(const CaptureCounts& counts) {
  return total(counts).tensors * kNoiseRowBytes + kFileBytes;
}

// Bytes of both forced passes.
std::uintmax_t forced_bytes(const CaptureCounts& counts) {
  return 3 * trace_bytes(counts);
}

// Bytes of the golden pass: its values are f64, which is four times as wide as the narrowest type
// of parameters.
std::uintmax_t golden_bytes(const CaptureCounts& counts) {
  return 4 * trace_bytes(counts);
}

constexpr auto kRow = "  {:<8}{:<18}{:>10}{:>18}\n";  // step, kind, tensors, bytes

void print_row(std::ostream& out,
               const std::string& step,
               std::string_view kind,
               const TensorCount& count) {
  out << fmt::format(kRow, step, kind, count.tensors, count.bytes);
}

void add_file(const RankFile& file, CaptureCounts& counts) {
  for (const Record& record : file.records()) {
    counts.steps[record.id.step][record.id.kind] += {1, record.bytes};
  }
}

}  // namespace

CaptureCounts count_trace(const std::string& folder) {
  const Trace trace = Trace::open(folder);
  CaptureCounts counts;
  counts.world_size = trace.manifest().world_size;
  for (const StepTrace& step : trace.steps()) {
    counts.steps[step.step];
    for (const RankFile& file : step.ranks) {
      add_file(file, counts);
    }
  }
  for (int rank = 0; rank < counts.world_size; ++rank) {
    std::error_code error;
    if (fs::exists(start_file(folder, rank), error)) {
      const RankFile start(start_file(folder, rank));
      for (const Record& record : start.records()) {
        counts.start += {1, record.bytes};
      }
    }
  }
  return counts;
}

std::uintmax_t Estimate::needed() const {
  const std::uintmax_t own =
      trace_bytes(reference) + start_bytes(reference) +
      static_cast<std::uintmax_t>(noise_passes) * noise_pass_bytes(reference);
  const std::uintmax_t others = trace_bytes(reference) + (forced ? forced_bytes(reference) : 0) +
                                (golden ? golden_bytes(reference) : 0);
  return (stored ? 0 : own) + others + (renamed ? own + others : 0);
}

void print_estimate(std::ostream& out, const Estimate& estimate) {
  const CaptureCounts& counts = estimate.reference;
  out << "one pass of the reference would record:\n"
      << fmt::format(kRow, "step", "kind", "tensors", "bytes");
  for (const auto& [step, kinds] : counts.steps) {
    for (const auto& [kind, count] : kinds) {
      print_row(out, std::to_string(step), name_of(kind), count);
    }
  }
  print_row(out, "all", "", total(counts));
  out << fmt::format("\nreference: {}{}\n",
                     size_text(trace_bytes(counts) + start_bytes(counts)),
                     estimate.stored ? ", which is stored already" : ", with start parameters");
  if (!estimate.stored) {
    out << fmt::format("noise: {} of {}\n",
                       counted(estimate.noise_passes, "pass"),
                       size_text(noise_pass_bytes(counts)));
  }
  out << fmt::format(
      "candidate: at least {}; this is enough if the ranks share every tensor, but each rank "
      "writes its own copy of a tensor that several ranks hold whole\n",
      size_text(trace_bytes(counts)));
  if (estimate.forced) {
    out << fmt::format(
        "forced passes: at most {}, because one of them uses a wider type; --no-forced skips "
        "them\n",
        size_text(forced_bytes(counts)));
  }
  if (estimate.golden) {
    out << fmt::format("golden pass: at most {}, because it uses f64\n",
                       size_text(golden_bytes(counts)));
  }
  if (estimate.renamed) {
    out << "--rename: all of these a second time, in the other program's names\n";
  }
  out << fmt::format("needed at {}: at least {}; free: {}{}\n",
                     estimate.output,
                     size_text(estimate.needed()),
                     size_text(estimate.free),
                     estimate.needed() > estimate.free ? ", which is too little" : "");
}

std::uintmax_t free_bytes(const std::string& path) {
  fs::path folder = fs::absolute(path);
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const fs::space_info space = fs::space(folder, error);
  TTRACE_CHECK(
      !error,
      UsageError,
      fmt::format(
          "cannot find out how much space is free at {}: {}", folder.string(), error.message()));
  return space.available;
}

std::string size_text(std::uintmax_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) {
    return std::to_string(bytes) + " bytes";
  }
  auto value = static_cast<double>(bytes) / 1000.0;
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ttrace::cli
