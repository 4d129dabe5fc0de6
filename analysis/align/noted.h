// What programs noted in their traces, as sentences of a report.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Appends "candidate, ranks 0-3, 2 steps: SENTENCE" for every sentence, in the order of their first
// occurrence. A sentence that several ranks or steps noted is one line. `side`: "candidate".
void add_notes(std::string_view side, const Trace& trace, std::vector<std::string>& notes);

}  // namespace ttrace
