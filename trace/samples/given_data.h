// What a program is given and does not compute: its data, and what the outermost module that both
// programs call takes before any module has returned anything.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/rank_file.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

namespace ttrace {

// Modules whose inputs were recorded.
[[nodiscard]] std::set<std::string> modules_with_inputs(std::span<const RankFile> files);

// The path of the outermost module by micro-batch, as far as the rank recorded what it takes before
// anything else. `others`: modules that the other program calls.
[[nodiscard]] std::map<std::int64_t, std::string> outermost_modules(
    const RankFile& file, const std::set<std::string>& others);

// The inputs of a trace's outermost modules, as far as the other trace has these modules, too.
[[nodiscard]] std::set<TensorId> given_inputs(const Trace& trace, const Trace& other);

}  // namespace ttrace
