// A tensor whose rows the program has placed, as one record per micro-batch.
//
// Experts that data-parallel ranks share process tokens of several micro-batches in one call; the
// reference runs those micro-batches one by one.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include "hooks/base/microbatch_state.h"
#include "hooks/base/tensor_copy.h"

#include <ttrace/placement.h>
#include <ttrace/rows.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ttrace {

// The rows of one micro-batch.
struct RowPart {
  std::shared_ptr<MicrobatchState> microbatch;
  std::size_t dim = 0;
  bool all = false;                 // local rows, in their order; then `local` is empty
  std::vector<std::int64_t> local;  // otherwise these
  DimPlacement placement;           // of dimension `dim`
  TensorId value;                   // of the recorded value; the caller's
};

// The parts in the order of Rows::microbatches, or one part. Throws UsageError if `rows` contradict
// themselves or the tensor's shape.
[[nodiscard]] std::vector<RowPart> split_rows(const Rows& rows,
                                              const std::vector<std::int64_t>& shape,
                                              const std::shared_ptr<MicrobatchState>& current);

// The part's rows of a tensor.
[[nodiscard]] TensorCopy select_rows(const TensorCopy& copy, const RowPart& part);
// The opposite: puts `bytes`, as select_rows() gives them, back into the tensor.
void put_rows(const std::vector<std::byte>& bytes, const RowPart& part, TensorCopy& copy);

}  // namespace ttrace
