// Stored traces as a timeline: a process per rank, whose tracks show when its modules ran, what was
// recorded, what it gave to collectives, and which tensors diverged.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/selection.h"
#include "analysis/timeline/judged_ids.h"
#include "analysis/timeline/trace_events.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <string>

namespace ttrace {

struct TimelineCounts {
  std::size_t ranks = 0;
  std::size_t slices = 0;   // of modules and collectives
  std::size_t records = 0;  // tensors of ranks
  std::size_t marks = 0;    // of tensors that diverged
};

// Whether every rank's file of every step says when its records were made.
[[nodiscard]] bool has_times(const Trace& trace);

// Adds the ranks of a trace, of steps and ranks that the selection wants. The timeline begins where
// the first of these steps does; without times, a record is a microsecond. `name`: "candidate".
// Throws FormatError.
[[nodiscard]] TimelineCounts add_timeline(const std::string& name,
                                          const Trace& trace,
                                          const JudgedIds& judged,
                                          TraceEventWriter& writer,
                                          const Selection& selection = {});

}  // namespace ttrace
