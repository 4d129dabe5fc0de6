#include "trace/samples/row_digests.h"

#include "trace/place/boxes.h"

#include <xxhash.h>

#include <memory>

namespace ttrace {

std::map<std::int64_t, RowIndices> rows_of(const Record& record) {
  const SampleDim& samples = *record.samples;
  std::map<std::int64_t, RowIndices> rows;
  for (const Segment& segment : record.placement.dims[samples.dim].segments) {
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      const std::int64_t logical = segment.logical + i;
      const std::int64_t block = logical / samples.rows / samples.count;
      RowIndices& row = rows[logical / samples.rows % samples.count];
      row.local.push_back(segment.local + i);
      row.within.push_back(block * samples.rows + logical % samples.rows);
    }
  }
  return rows;
}

RowReader::RowReader(std::span<const DimPlacement> dims,
                     std::size_t dim,
                     std::int64_t extent,
                     std::span<const std::byte> bytes,
                     std::size_t element_size,
                     Holds holds)
    : extent_(extent), bytes_(bytes), element_size_(element_size) {
  const bool is_part = holds == Holds::kPart;
  for_each_run(dims.first(dim), [&](Offsets offsets, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      outer_.push_back((is_part ? offsets.local : offsets.logical) + i);
    }
  });
  for_each_run(dims.subspan(dim + 1), [&](Offsets offsets, std::int64_t length) {
    inner_.push_back({is_part ? offsets.local : offsets.logical, length});
  });
  for (const DimPlacement& inner : dims.subspan(dim + 1)) {
    inner_size_ *= is_part ? inner.local_size : inner.logical_size;
  }
}

std::uint64_t RowReader::digest(std::span<const std::int64_t> indices) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const std::int64_t outer : outer_) {
    for (const std::int64_t index : indices) {
      const std::int64_t start = (outer * extent_ + index) * inner_size_;
      for (const Run& run : inner_) {
        XXH3_64bits_update(
            state.get(),
            bytes_.data() + static_cast<std::size_t>(start + run.first) * element_size_,
            static_cast<std::size_t>(run.length) * element_size_);
      }
    }
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace ttrace
