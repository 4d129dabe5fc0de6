// Benchmarks of the core as ratios to plain loops, measured in one run so that figures of different
// machines can be compared.
//
//   ttrace_bench [--json FILE] [Google Benchmark's own options]
#include "support/temporary_directory.h"

#include <ttrace/error.h>
#include <ttrace/merge.h>
#include <ttrace/placement.h>
#include <ttrace/statistics.h>
#include <ttrace/trace_writer.h>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kElements = std::int64_t{1} << 23;  // more than the caches hold
constexpr int kSmallTensors = 20'000;
constexpr std::int64_t kSmallElements = 1024;  // of f32, 4 KiB
constexpr int kRanks = 4;
constexpr std::int64_t kRows = 4096;

// Two tensors that differ in the last digits, as bytes of `type`.
struct Pair {
  explicit Pair(ElementType element_type) : type(element_type) {
    std::mt19937 engine(1);
    std::normal_distribution<double> distribution;
    std::vector<double> values(kElements);
    std::generate(values.begin(), values.end(), [&] { return distribution(engine); });
    reference = bytes_of(values);
    for (double& value : values) {
      value *= 1.001;
    }
    candidate = bytes_of(values);
  }
  [[nodiscard]] std::vector<std::byte> bytes_of(const std::vector<double>& values) const {
    std::vector<std::byte> bytes(values.size() * element_size(type));
    from_double(type, values.data(), kElements, bytes.data());
    return bytes;
  }
  [[nodiscard]] std::int64_t bytes_read() const {
    return static_cast<std::int64_t>(reference.size() + candidate.size());
  }

  ElementType type;
  std::vector<std::byte> reference;
  std::vector<std::byte> candidate;
};

void compare_tensors(benchmark::State& state, ElementType type) {
  const Pair pair(type);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(
        compare(type, pair.reference.data(), type, pair.candidate.data(), kElements));
  }
  state.SetBytesProcessed(state.iterations() * pair.bytes_read());
}

float sum(const std::vector<std::byte>& bytes) {
  std::array<float, 16> lanes{};
  for (std::size_t offset = 0; offset < bytes.size(); offset += sizeof lanes) {
    std::array<float, 16> values{};
    std::memcpy(values.data(), bytes.data() + offset, sizeof values);
#pragma omp simd
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane] += values[lane];
    }
  }
  float total = 0.0F;
  for (const float lane : lanes) {
    total += lane;
  }
  return total;
}

// The same bytes, added up as if they were f32: what reading them costs.
void sum_tensors(benchmark::State& state, ElementType type) {
  const Pair pair(type);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(sum(pair.reference) + sum(pair.candidate));
  }
  state.SetBytesProcessed(state.iterations() * pair.bytes_read());
}

// A matrix cut by columns, the usual case of tensor parallelism.
void merge_columns(benchmark::State& state) {
  constexpr std::int64_t kColumns = kElements / kRows;
  constexpr std::int64_t kPiece = kColumns / kRanks;
  std::array<Record, kRanks> records;
  const std::vector<float> local(static_cast<std::size_t>(kRows * kPiece), 1.0F);
  std::vector<Shard> shards;
  for (int rank = 0; rank < kRanks; ++rank) {
    Record& record = records[static_cast<std::size_t>(rank)];
    record.shape = {kRows, kPiece};
    record.placement = whole(record.shape);
    record.placement.dims[1] = {kPiece, kColumns, {{0, rank * kPiece, kPiece}}};
    shards.push_back({rank, &record, std::as_bytes(std::span(local))});
  }
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(merge(shards));
  }
}

// The same bytes into fresh memory.
void copy_whole(benchmark::State& state) {
  const std::vector<float> source(static_cast<std::size_t>(kElements), 1.0F);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(std::vector<float>(source));
  }
}

void write_trace(benchmark::State& state) {
  const testing::TemporaryDirectory directory;
  const std::vector<float> values(kSmallElements, 1.0F);
  Record record;
  record.shape = {kSmallElements};
  record.placement = whole(record.shape);
  for ([[maybe_unused]] auto iteration : state) {
    TraceWriter writer(step_file(directory.path(), 0, 0), Layout{});
    for (int i = 0; i < kSmallTensors; ++i) {
      record.id.path = "decoder.layers." + std::to_string(i) + ".mlp.linear_fc1";
      writer.append(record, std::as_bytes(std::span(values)));
    }
    writer.commit();
  }
}

void write_plainly(benchmark::State& state) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "plain";
  const std::vector<float> values(kSmallElements, 1.0F);
  const std::size_t size = values.size() * sizeof(float);
  for ([[maybe_unused]] auto iteration : state) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = file >= 0;
    for (int i = 0; i < kSmallTensors && written; ++i) {
      written = ::write(file, values.data(), size) == static_cast<ssize_t>(size);
    }
    written = written && ::fsync(file) == 0;
    ::close(file);
    if (!written) {
      state.SkipWithError(("cannot write " + path).c_str());
      break;
    }
  }
}

// Prints the usual table and keeps the shortest time of each benchmark: the machine's other work
// only ever adds to it.
class ShortestTimes : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration && !run.error_occurred) {
        double& shortest =
            seconds_
                .try_emplace(run.run_name.function_name, std::numeric_limits<double>::infinity())
                .first->second;
        shortest =
            std::min(shortest, run.real_accumulated_time / static_cast<double>(run.iterations));
      }
    }
  }
  // Time of one benchmark over that of another; nothing where one did not run.
  [[nodiscard]] std::optional<double> ratio(const std::string& numerator,
                                            const std::string& denominator) const {
    const auto over = seconds_.find(numerator);
    const auto under = seconds_.find(denominator);
    if (over == seconds_.end() || under == seconds_.end()) {
      return std::nullopt;
    }
    return over->second / under->second;
  }

 private:
  std::map<std::string, double> seconds_;
};

void register_benchmarks() {
  const auto add = [](const char* name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name, function, arguments...)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.1)
        ->Repetitions(5);
  };
  add("sum_f32", sum_tensors, ElementType::kF32);
  add("compare_f32", compare_tensors, ElementType::kF32);
  add("sum_bf16", sum_tensors, ElementType::kBF16);
  add("compare_bf16", compare_tensors, ElementType::kBF16);
  add("memcpy", copy_whole);
  add("merge", merge_columns);
  add("plain_write", write_plainly);
  add("write_20k", write_trace);
}

nlohmann::json figures(const ShortestTimes& times) {
  nlohmann::json result = nlohmann::json::object();
  const auto set = [&](const char* key, const char* numerator, const char* denominator) {
    if (const std::optional<double> ratio = times.ratio(numerator, denominator)) {
      result[key] = *ratio;
    }
  };
  set("compare_share_of_read_f32", "sum_f32", "compare_f32");
  set("compare_share_of_read_bf16", "sum_bf16", "compare_bf16");
  set("merge_over_memcpy", "merge", "memcpy");
  set("write_20k_over_plain_write", "write_20k", "plain_write");
  return result;
}

// Takes `--json FILE` out of the arguments.
std::optional<std::string> take_json_path(std::vector<char*>& arguments) {
  const auto flag = std::find_if(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::strcmp(argument, "--json") == 0;
  });
  if (flag == arguments.end()) {
    return std::nullopt;
  }
  TTRACE_CHECK(flag + 1 != arguments.end(), UsageError, "--json needs the name of a file");
  std::string path = *(flag + 1);
  arguments.erase(flag, flag + 2);
  return path;
}

int run(std::vector<char*> arguments) {
  const std::optional<std::string> json_path = take_json_path(arguments);
  register_benchmarks();
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) {
    return 2;
  }
  ShortestTimes times;
  benchmark::RunSpecifiedBenchmarks(&times);
  const nlohmann::json result = figures(times);
  std::cout << result.dump(2) << '\n';
  if (json_path) {
    std::ofstream file(*json_path);
    file << result.dump(2) << '\n';
    TTRACE_CHECK(file.flush().good(), UsageError, "cannot write ", *json_path);
  }
  return 0;
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) {
  try {
    return ttrace::run({argv, argv + argc});
  } catch (const ttrace::Error& error) {
    std::cerr << "ttrace_bench: " << error.message() << '\n';
    return 2;
  }
}
