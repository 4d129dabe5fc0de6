// What programs noted in their traces, as sentences of a report.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/not_seen.h"
#include "trace/file/trace_reader.h"

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Appends "candidate, ranks 0-3, 2 steps: SENTENCE" for every sentence, in the order of their first
// occurrence. A sentence that several ranks or steps noted is one line, and so are sentences that
// differ in their numbers alone: "SENTENCE (and 5 like it)". `side`: "candidate".
void add_notes(std::string_view side, const Trace& trace, std::vector<std::string>& notes);

// What either program states that nobody looked at, in the order of its first occurrence. A
// sentence that several ranks or steps state is one; one of both sides has no side.
[[nodiscard]] std::vector<UnseenPart> stated_not_seen(const Trace& reference,
                                                      const Trace& candidate);

}  // namespace ttrace
