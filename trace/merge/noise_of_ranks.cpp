#include "trace/merge/noise_of_ranks.h"

#include "trace/base/kind.h"
#include "trace/base/parse_integer.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/sums/moments.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Nothing is said of a tensor that either side does not have, or has in another shape.
NoisePass pass_of(const Trace& reference, const Trace& noisy, int seed) {
  const ShardIndex known(reference);
  const ShardIndex found(noisy);
  std::set<TensorId> ids;
  for (const RankFile& file : noisy.files()) {
    for (const Record& record : file.records()) {
      ids.insert(record.id);
    }
  }
  NoisePass pass;
  pass.seed = seed;
  pass.run = noisy.manifest().run;
  for (const TensorId& id : ids) {
    const std::span<const Shard> shards = found.of(id);
    if (known.of(id).empty() || family_of(id.kind) == KindFamily::kProgram) {
      continue;
    }
    MergeResult left = merge(known.of(id));
    MergeResult right = merge(shards);
    if (!left.has_values() || !right.has_values() || left.shape != right.shape) {
      continue;
    }
    NoiseRow row = noise_row(left, right);
    row.id = id;
    row.covered =
        std::ranges::none_of(shards, [](const Shard& shard) { return shard.record->lacks_noise; });
    pass.rows.push_back(std::move(row));
  }
  return pass;
}

std::vector<std::string> complete_traces(const fs::path& folder) {
  std::vector<std::string> traces;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory(error) && is_complete(entry->path().string())) {
      traces.push_back(entry->path().string());
    }
  }
  return traces;
}

}  // namespace

NoiseRow noise_row(const Statistics& statistics, const Slices& slices) {
  NoiseRow row;
  row.sum_squared = statistics.difference_squared;
  row.max_abs = statistics.max_difference;
  row.along_reference = 0.0;
  if (statistics.first_nonfinite >= 0) {
    row.nonfinite = static_cast<std::uint64_t>(
        std::max<std::int64_t>(1, statistics.candidate_nonfinite - statistics.reference_nonfinite));
  }
  // If nothing moved, there is nothing to store about slices.
  if (row.sum_squared != 0.0) {
    row.along_reference = slices.all.along_reference;
    for (const SliceSums& sums : slices.sums) {
      row.slices.push_back(sums.difference_squared);
    }
  }
  return row;
}

NoiseRow noise_row(MergeResult& reference, MergeResult& noisy) {
  if (reference.sketch || noisy.sketch) {
    const Sketch left = sketch_of(reference);
    const Sketch right = sketch_of(noisy);
    const Moments moments = moments_of(left, right);
    NoiseRow row = noise_row(moments.all, moments.slices);
    row.max_abs = outstanding_difference(left, right);
    return row;
  }
  // Where noise sent a row elsewhere, there is nothing to compare.
  keep_common_rows(reference, noisy);
  const Statistics statistics = compare(reference.type,
                                        reference.bytes.data(),
                                        noisy.type,
                                        noisy.bytes.data(),
                                        element_count(noisy.shape));
  const bool has_slices = statistics.difference_squared != 0.0 && is_floating(noisy.type);
  return noise_row(statistics,
                   has_slices ? sum_slices(reference.shape,
                                           reference.type,
                                           reference.bytes.data(),
                                           noisy.type,
                                           noisy.bytes.data(),
                                           SliceDetail::kDifferences)
                              : Slices());
}

void write_noise_of_ranks(const std::string& directory) {
  const std::vector<std::string> traces = complete_traces(fs::path(directory) / "noise");
  if (traces.empty()) {
    return;
  }
  const Trace reference = Trace::open(directory);
  for (const std::string& trace : traces) {
    const std::string name = fs::path(trace).filename().string();
    const std::optional<int> seed =
        name == "self" ? std::optional(kSelfCheckSeed) : parse_number<int>(name);
    TTRACE_CHECK(seed && noise_trace(directory, *seed) == trace,
                 FormatError,
                 trace,
                 " is not the trace of a noise pass; move it elsewhere");
    write_noise(directory, pass_of(reference, Trace::open(trace), *seed));
    std::error_code error;
    fs::remove_all(trace, error);
  }
}

}  // namespace ttrace
