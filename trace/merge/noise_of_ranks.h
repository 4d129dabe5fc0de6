// What a noise pass says of a tensor, and the table of a pass of several ranks.
//
// A pass of one rank compares its tensors with the reference's while it runs, and writes the table
// alone. Ranks hold parts and addends, whose differences do not tell that of the whole tensor, so
// they write a trace, DIR/noise/00001, whose parts are put together here.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/noise_table.h"
#include "trace/merge/merge_result.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <string>

namespace ttrace {

// A row without its id, from sums over m - r; slices of integers are none.
[[nodiscard]] NoiseRow noise_row(const Statistics& statistics, const Slices& slices);
// The same from two tensors of one shape, or their sketches. Of a sparse dimension, what is not on
// both sides is set to zero in them. Requires: has_values() of both.
[[nodiscard]] NoiseRow noise_row(MergeResult& reference, MergeResult& noisy);

// Makes the tables of all passes of several ranks that are complete in the reference `directory`,
// and removes their traces. Throws FormatError.
void write_noise_of_ranks(const std::string& directory);

}  // namespace ttrace
