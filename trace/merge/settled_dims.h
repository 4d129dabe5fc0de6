// Where tensors of a candidate lie of which nobody said it, as the comparison of their values with
// a reference found (analysis/infer/settle.h). A forced pass cannot find that itself: the check
// hands it over in a file (TTRACE_SETTLED), so that the program gets a tensor's value and not one
// rank's addend of it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <map>
#include <optional>
#include <string>

namespace ttrace {

using SettledDims = std::map<TensorId, std::string>;  // "a b c[tp:partial]"

// Sets the placements of these records of `candidate`. One whose sizes do not fit keeps its own: it
// is wrong, as others of its class are not.
void place_settled(const SettledDims& settled, Trace& candidate);

// Where a record would lie. Nothing if its sizes do not fit. Another factor than 1 stays, and is
// for the comparison to find.
[[nodiscard]] std::optional<Placement> placed(const RankFile& file,
                                              const Record& record,
                                              const std::string& dims);

// As JSON.
[[nodiscard]] std::string to_text(const SettledDims& settled);
// Throws FormatError if the file cannot be read, or is none of these.
[[nodiscard]] SettledDims read_settled_dims(const std::string& path);

}  // namespace ttrace
