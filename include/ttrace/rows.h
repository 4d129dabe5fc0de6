// Where the rows of one tensor lie, for tensors whose rows no annotation can place.
//
// Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {

// Names the logical row of every local row: tokens that a router sent to an expert, or packed
// sequences. For dimension `dim` it overrides the annotation file. If Microbatch::permutation() has
// permuted the samples, logical rows count the samples in their original order.
//
// REQUIRES: `index` has one entry for every row of the tensor. `microbatch` has as many, or is
// empty where `microbatches` is empty. Scope::in() and Scope::out() report a violation as
// UsageError (see session.h for how errors reach the program).
struct Rows {
  std::vector<std::int64_t> index;  // local row -> logical row; -1 (kPadding) marks padding
  std::int64_t size = 0;            // number of logical rows of one micro-batch
  std::size_t dim = 0;              // the dimension of the tensor that has these rows
  // True: some logical rows may be on no rank at all. Reference and candidate must hold the same.
  bool sparse = true;
  // Only for rows that come from several micro-batches, as in experts that data-parallel ranks
  // share. `microbatch` gives the global micro-batch of every local row. `microbatches` lists all
  // micro-batches that rows can come from; each of them gets a record, even one without rows.
  // Both empty: all rows belong to the current micro-batch.
  std::vector<std::int64_t> microbatch = {};
  std::vector<std::int64_t> microbatches = {};
};

}  // namespace ttrace
