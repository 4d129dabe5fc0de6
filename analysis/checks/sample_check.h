// T0: does the candidate read every sample of the reference once?
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/check.h"
#include "trace/samples/align_samples.h"

#include <ttrace/tensor_id.h>

#include <vector>

namespace ttrace {

// Samples that the candidate does not read exactly once, at the data that show it.
[[nodiscard]] std::vector<Check> sample_checks(const SampleAlignment& samples, const TensorId& id);

// Whether the candidate's tensor has no place beside the reference's: its rows are nobody's
// (dealt_rows.h), or its samples are not the reference's. Data have one where both sides read some,
// because their difference shows what is wrong. `samples` null: nobody looked at them.
[[nodiscard]] bool lacks_place(const SampleAlignment* samples, const Match& match);

// Whether it is a sum over samples of which the forced passes had other ones, so that they do
// not say what its operators make of the candidate's.
[[nodiscard]] bool sums_other_samples(const SampleAlignment& samples, const TensorId& id);

}  // namespace ttrace
