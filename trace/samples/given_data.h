// What a program is given and does not compute: its data, and what the outermost module of a
// micro-batch takes before any module has returned anything.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/rank_file.h"
#include "trace/file/trace_reader.h"

#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace ttrace {

// The path of the outermost module by micro-batch, as far as the rank recorded what it takes before
// anything else.
[[nodiscard]] TTRACE_API std::map<std::int64_t, std::string> outermost_modules(
    const RankFile& file);

// The inputs of a trace's outermost modules.
[[nodiscard]] TTRACE_API std::set<TensorId> given_inputs(const Trace& trace);

}  // namespace ttrace
