#include "analysis/align/parallel.h"
#include "bench/figures.h"
#include "bench/measure.h"
#include "support/temporary_directory.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/sums/statistics.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ttrace::bench {
namespace {

constexpr int kTensors = 16;
constexpr std::int64_t kTensorBytes = std::int64_t{8} << 20;
constexpr int kPairs = 15;
constexpr int kAllCores = 0;

std::string write_file(const std::string& file, ElementType type, double factor) {
  const std::int64_t count = kTensorBytes / static_cast<std::int64_t>(element_size(type));
  std::mt19937 engine(1);
  std::normal_distribution<double> distribution;
  std::vector<double> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return factor * distribution(engine); });
  std::vector<std::byte> bytes(static_cast<std::size_t>(kTensorBytes));
  from_double(type, values.data(), count, bytes.data());

  TraceWriter writer(file, Layout{});
  for (int i = 0; i < kTensors; ++i) {
    Record record;
    record.id.path = "layers." + std::to_string(i);
    record.type = type;
    record.shape = {count};
    record.placement = whole(record.shape);
    writer.append(record, bytes);
  }
  writer.commit();
  return file;
}

// Two files of one rank, mapped; their tensors differ in the last digits.
struct FilePair {
  explicit FilePair(ElementType type)
      : reference(write_file(directory / "reference.h5", type, 1.0)),
        candidate(write_file(directory / "candidate.h5", type, 1.001)) {}

  testing::TemporaryDirectory directory;
  RankFile reference;
  RankFile candidate;
};

// Adds the bytes up as if they were f32: what reading them costs.
#if defined(__x86_64__)
[[gnu::target_clones("avx512f", "avx2", "default")]]
#endif
float sum(const std::byte* bytes, std::size_t size) {
  float lanes[64] = {};
  for (std::size_t offset = 0; offset < size; offset += sizeof lanes) {
    float values[64];
    std::memcpy(values, bytes + offset, sizeof values);
#pragma omp simd
    for (std::size_t lane = 0; lane < 64; ++lane) {
      lanes[lane] += values[lane];
    }
  }
  float total = 0.0F;
  for (const float lane : lanes) {
    total += lane;
  }
  return total;
}

double share_of_read(ElementType type) {
  const FilePair files(type);
  std::atomic<double> used{0.0};  // so that nothing is left out as unused
  const auto for_each_pair = [&](auto work) {
    parallel_for(kTensors, kAllCores, [&](std::size_t i) {
      used = work(files.reference.bytes(files.reference.records()[i]),
                  files.candidate.bytes(files.candidate.records()[i]));
    });
  };
  const auto read = [&] {
    for_each_pair([](std::span<const std::byte> r, std::span<const std::byte> c) {
      return sum(r.data(), r.size()) + sum(c.data(), c.size());
    });
  };
  const auto judge = [&] {
    const std::int64_t count = kTensorBytes / static_cast<std::int64_t>(element_size(type));
    for_each_pair([&](std::span<const std::byte> r, std::span<const std::byte> c) {
      return compare(type, r.data(), type, c.data(), count).difference_squared;
    });
  };
  return median(in_turn(kPairs, read, judge).ratios());
}

void run(nlohmann::ordered_json& figures) {
  figures["compare_share_of_read_f32"] = share_of_read(ElementType::kF32);
  figures["compare_share_of_read_bf16"] = share_of_read(ElementType::kBF16);
}

}  // namespace

Group comparison_group() {
  return {"comparison",
          {{"compare_share_of_read_f32",
            "at least 0.6",
            "speed of comparing two traces' f32 tensors in the page cache over that of summing "
            "the same mappings with as many threads"},
           {"compare_share_of_read_bf16", "at least 0.45", "the same for bf16"}},
          run};
}

}  // namespace ttrace::bench
