// A candidate's records in the reference's micro-batches, at the reference's samples.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/samples/deal_samples.h"

#include <ttrace/tensor_id.h>

#include <set>
#include <vector>

namespace ttrace {

// Sets the records of one step of the candidate, in memory only. A record with a dimension of
// samples becomes a part of every micro-batch that its samples are in. Gradients without one become
// addends of one gradient, where whole micro-batches make up one of the reference. Values without
// one stay if they are the same in all of these. All else is left out. Returns the ids, in the
// reference's micro-batches, of what was. Data of incomplete micro-batches stay where they were, if
// the reference has such a tensor. Where samples have other numbers of positions than in the
// reference (`rows`), those that both have are placed, and the values of the reference's padding
// are borrowed, so that they do not differ.
[[nodiscard]] std::set<TensorId> place_records(const StepTrace& reference,
                                               const DealtSamples& dealt,
                                               const DataRows& rows,
                                               StepTrace& candidate);

}  // namespace ttrace
