#include "analysis/diff.h"
#include "bench/figures.h"
#include "bench/measure.h"
#include "support/temporary_directory.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <array>
#include <cstddef>
#include <fcntl.h>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

namespace ttrace::bench {
namespace {

constexpr int kSmallTensors = 20'000;
constexpr std::int64_t kSmallElements = 1024;  // of f32, 4 KiB
constexpr int kRanks = 4;
constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kColumns = 2048;

TensorId small_id(int number) {
  TensorId id;
  id.microbatch = 0;
  id.path = "decoder.layers." + std::to_string(number) + ".mlp.linear_fc1";
  return id;
}

void write_trace(const std::string& directory, float value) {
  const std::vector<float> values(kSmallElements, value);
  Record record;
  record.shape = {1, kSmallElements};
  record.placement = whole(record.shape);
  TraceWriter writer(step_file(directory, 0, 0), Layout{});
  for (int i = 0; i < kSmallTensors; ++i) {
    record.id = small_id(i);
    record.order = static_cast<std::uint64_t>(i);
    writer.append(record, std::as_bytes(std::span(values)));
  }
  writer.commit();
}

void write_plainly(const std::string& path) {
  const std::vector<float> values(kSmallElements, 1.0F);
  const std::size_t size = values.size() * sizeof(float);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool written = file >= 0;
  for (int i = 0; i < kSmallTensors && written; ++i) {
    written = ::write(file, values.data(), size) == static_cast<ssize_t>(size);
  }
  written = written && ::fsync(file) == 0;
  ::close(file);
  TTRACE_CHECK(written, UsageError, "cannot write ", path, "; is its disk full?");
}

void measure_writing(nlohmann::ordered_json& figures) {
  const testing::TemporaryDirectory directory;
  int number = 0;  // every file is a new one
  const auto next = [&] { return directory / std::to_string(number++); };
  const Pairs times = in_turn(
      7, [&] { write_trace(next(), 1.0F); }, [&] { write_plainly(next()); });
  figures["write_20k_s"] = shortest(times.first);
  figures["write_20k_over_plain_write"] = median(times.ratios());
}

// Compares as `ttrace diff` does, with the noise of five passes.
void measure_judging(nlohmann::ordered_json& figures) {
  constexpr int kPasses = 5;
  const testing::TemporaryDirectory directory;
  Manifest manifest;
  manifest.pass = "reference";
  manifest.steps = {0};
  manifest.precision = "f32";
  for (const char* side : {"reference", "candidate"}) {
    write_manifest(directory / side, manifest);
  }
  write_trace(directory / "reference", 1.0F);
  write_trace(directory / "candidate", 1.0F + 1e-6F);
  for (int seed = 1; seed <= kPasses; ++seed) {
    NoisePass pass{seed, {}};
    for (int i = 0; i < kSmallTensors; ++i) {
      pass.rows.push_back({small_id(i), 1e-8, 1e-6, 0});
    }
    write_noise(directory / "reference", pass);
  }
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    times.push_back(seconds([&] {
      const Report report =
          diff(Trace::open(directory / "reference"), Trace::open(directory / "candidate"));
      TTRACE_CHECK(report.counts().bounds_from_noise == kSmallTensors && !report.diverged(),
                   InternalError,
                   "the benchmark's own traces differ");
    }));
  }
  figures["small_pair_us"] = shortest(times) * 1e6 / kSmallTensors;
}

// A matrix cut by columns, the usual case of tensor parallelism, against a copy of its bytes into
// fresh memory.
void measure_merging(nlohmann::ordered_json& figures) {
  constexpr std::int64_t kPiece = kColumns / kRanks;
  std::array<Record, kRanks> records;
  const std::vector<float> local(static_cast<std::size_t>(kRows * kPiece), 1.0F);
  const std::vector<float> source(static_cast<std::size_t>(kRows * kColumns), 1.0F);
  std::vector<Shard> shards;
  for (int rank = 0; rank < kRanks; ++rank) {
    Record& record = records[static_cast<std::size_t>(rank)];
    record.shape = {kRows, kPiece};
    record.placement = whole(record.shape);
    record.placement.dims[1] = {kPiece, kColumns, {{0, rank * kPiece, kPiece}}};
    shards.push_back({rank, &record, std::as_bytes(std::span(local))});
  }
  std::size_t used = 0;
  const Pairs times = in_turn(
      9,
      [&] { used += merge(shards).bytes.size(); },
      [&] { used += std::vector<float>(source).size(); });
  TTRACE_CHECK(used > 0, InternalError, "nothing was merged");
  figures["merge_over_memcpy"] = median(times.ratios());
}

void run(nlohmann::ordered_json& figures) {
  measure_judging(figures);
  measure_writing(figures);
  measure_merging(figures);
}

}  // namespace

Group files_group() {
  return {"files",
          {{"small_pair_us",
            "at most 5",
            "microseconds per pair to open, match and judge two traces of 20,000 tensors of 4 KiB "
            "with five noise passes"},
           {"write_20k_s", "", "seconds to write 20,000 tensors of 4 KiB as a rank file"},
           {"write_20k_over_plain_write", "", "the same over write() of the same bytes and fsync"},
           {"merge_over_memcpy",
            "",
            "time to merge four column shards of a matrix over that of copying it"}},
          run};
}

}  // namespace ttrace::bench
