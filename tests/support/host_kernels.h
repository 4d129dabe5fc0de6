// The kernels of trace/kernels, run on the host as a GPU would share them out.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/kernels/kernels.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ttrace::testing {

// `workers`: teams, or threads where these share nothing. Each takes every workers-th unit of work.
// They run one after another, the last first, because no order is promised.
template <class Body>
void run_grid(int workers, const Body& body) {
  for (int worker = workers; worker-- > 0;) {
    body(Grid{worker, workers});
  }
}

inline void perturb_in_grid(int workers,
                            ElementType type,
                            NoiseClass noise,
                            std::uint64_t seed,
                            std::int64_t count,
                            void* values) {
  with_noise_of(type, noise, [&](auto format, auto random) {
    run_grid(workers, [&](Grid grid) {
      perturb_elements<decltype(format), decltype(random)>(grid, seed, count, values);
    });
  });
}

[[nodiscard]] inline Digest digest_in_grid(int workers, const void* data, std::int64_t bytes) {
  Digest sum{};
  run_grid(workers, [&](Grid teams) {
    Digest memory[kDigestThreads];
    sum_digest(teams, HostTeam<kDigestThreads>(), memory, data, bytes, [&](const Digest& part) {
      add_digest(part, sum);
    });
  });
  return finished_digest(sum, bytes);
}

[[nodiscard]] inline Statistics compare_in_grid(int workers, const ElementPairs& pairs) {
  std::vector<GroupFigures> groups(static_cast<std::size_t>(groups_of(pairs.count)));
  with_source_of(pairs.reference_type, pairs.candidate_type, [&](auto tag) {
    run_grid(workers, [&](Grid teams) {
      CompareMemory memory;
      compare_pairs<typename decltype(tag)::Type>(
          teams, HostTeam<kCompareThreads>(), memory, pairs, groups.data());
    });
  });
  return statistics_of(groups, pairs.count);
}

[[nodiscard]] inline Slices sum_slices_in_grid(int workers,
                                               std::span<const std::int64_t> shape,
                                               const ElementPairs& pairs) {
  const SliceRows how = slice_rows(shape);
  const RowPairs rows{pairs, how.row};
  std::vector<ChunkSums> chunks(static_cast<std::size_t>(rows.chunks()));
  std::vector<double> columns(how.columns ? static_cast<std::size_t>(how.row) : 0);
  run_grid(workers, [&](Grid grid) {
    SliceMemory memory;
    sum_chunks(grid, HostTeam<kSliceThreads>(), memory, rows, chunks.data());
    if (how.columns) {
      sum_columns(grid, rows, columns.data());
    }
  });
  return join_chunks(shape, chunks, columns);
}

}  // namespace ttrace::testing
