// What a tensor holds of one sample, as a digest.
//
// A rank may hold a part of a sample: some positions of a sequence, say. The digest of the same
// part of a sample in a whole tensor is the same number, so that rows are found without a gather.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "trace/file/record.h"
#include "trace/place/sample_dim.h"

#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace ttrace {

// Where one sample lies along the dimension of samples of a rank's tensor.
struct RowIndices {
  std::vector<std::int64_t> local;
  // The same indices within the sample: their position in what remains of the logical dimension
  // where only this sample is left.
  std::vector<std::int64_t> within;
};

// The logical index of index `within` of a sample.
[[nodiscard]] inline std::int64_t logical_index(const SampleDim& samples,
                                                std::int64_t sample,
                                                std::int64_t within) {
  const std::int64_t block = within / samples.rows;
  return (block * samples.count + sample) * samples.rows + within % samples.rows;
}
// How many indices of the logical dimension one sample has.
[[nodiscard]] inline std::int64_t indices_per_sample(const SampleDim& samples,
                                                     const Placement& placement) {
  return placement.dims[samples.dim].logical_size / samples.count;
}

// By logical sample; padding belongs to none. Requires: record.samples.
[[nodiscard]] std::map<std::int64_t, RowIndices> rows_of(const Record& record);

// Reads rows of one tensor.
class RowReader {
 public:
  // `dims`: how a rank cuts the tensor. `bytes`: its local tensor, or the whole logical one, where
  // the dimension of samples, `dim`, has `extent` indices.
  enum class Holds { kPart, kWhole };
  RowReader(std::span<const DimPlacement> dims,
            std::size_t dim,
            std::int64_t extent,
            std::span<const std::byte> bytes,
            std::size_t element_size,
            Holds holds);

  // Of what the rank holds at these indices of the dimension of samples.
  [[nodiscard]] std::uint64_t digest(std::span<const std::int64_t> indices) const;

 private:
  struct Run {
    std::int64_t first = 0;
    std::int64_t length = 0;
  };
  std::vector<std::int64_t> outer_;  // indices of the dimensions before, as one number
  std::vector<Run> inner_;           // elements of the dimensions behind
  std::int64_t extent_ = 0;
  std::int64_t inner_size_ = 1;
  std::span<const std::byte> bytes_;
  std::size_t element_size_ = 1;
};

}  // namespace ttrace
