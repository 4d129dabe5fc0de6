// Digests of a run's records, bit for bit.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <utility>

namespace ttrace::testing {

// The digests of all records, by rank and id.
using Digests = std::map<std::pair<int, TensorId>, std::uint64_t>;

[[nodiscard]] Digests digests_of(const Trace& trace);

}  // namespace ttrace::testing
