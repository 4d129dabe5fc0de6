// Brings the samples of a candidate to where the reference has them.
//
// Two right programs may read the same samples in another order, on other ranks, or in
// micro-batches of another size. Their data say which sample is which (data_rows.h,
// deal_samples.h), and all that follows from data is placed accordingly (placed_records.h), in
// memory alone. The result follows from the two traces, so that a comparison and a forced pass see
// the same.
//
// Thread-safety: values and a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// Samples that the candidate does not read exactly once.
struct SampleFinding {
  TensorId id;             // the reference's data
  std::vector<int> ranks;  // of the candidate; empty: all
  std::string sentence;
};

struct SampleAlignment {
  std::vector<std::string> remarks;     // how samples are dealt, where that is no mistake
  std::vector<SampleFinding> findings;  // in the order of their micro-batches
  std::vector<std::string> unseen;      // what could not be compared for want of an alignment
  // Step and micro-batch of the reference whose samples could not be brought together.
  std::set<std::pair<std::int64_t, std::int64_t>> unaligned;
  // What the candidate recorded in other micro-batches, and what has no counterpart there.
  std::set<TensorId> left_out;
  std::vector<TensorId> data;  // names of what both programs read, see DataRows

  // Whether every sample lies where the candidate claims it.
  [[nodiscard]] bool is_identity() const {
    return remarks.empty() && findings.empty() && unaligned.empty();
  }
  // Whether the candidate has no values that may be compared with this tensor.
  [[nodiscard]] bool lacks(const TensorId& id) const {
    return left_out.contains(id) || is_unaligned(id);
  }
  [[nodiscard]] bool is_unaligned(const TensorId& id) const {
    return unaligned.contains({id.step, id.microbatch});
  }
  // Whether nothing says which of the candidate's samples is which of the reference's.
  [[nodiscard]] bool knows_nothing() const { return !unaligned.empty() && findings.empty(); }
  // Whether it is data that the programs read.
  [[nodiscard]] bool is_data(TensorId id) const;
  // Whether sums over the step's samples are not of the reference's: a micro-batch could not be
  // aligned, or the candidate does not read every sample exactly once.
  [[nodiscard]] bool has_other_sums(std::int64_t step) const;
};

// Places the records of `candidate`. Changes nothing where every sample keeps its place, where one
// of the traces does not say which dimensions hold samples, and in interrupted steps. Throws
// FormatError for records that contradict their files.
[[nodiscard]] SampleAlignment align_samples(const Trace& reference, Trace& candidate);

}  // namespace ttrace
