// The three ways to write a report down.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/findings/report.h"

#include <cstddef>
#include <iosfwd>

namespace ttrace {

struct TextOptions {
  bool color = false;         // of the verdict words
  std::size_t max_rows = 20;  // of the table of findings
};

// For people: verdict, first divergence, then only what differs, then counts.
void write_text(std::ostream& out, const Report& report, const TextOptions& options);

// For programs: every tensor, numbers that round-trip, NaN and Inf as strings. One line per tensor.
void write_json(std::ostream& out, const Report& report);

// For CI servers: JUnit's XML, in the dialect that Jenkins, GitLab and GitHub's actions read. A
// suite is a module, a test one of its tensors, named by its id; findings have failed, what was not
// judged, is inherited or allowed is skipped. The suite of the first divergence comes first. Where
// the verdict covers only a part, one test more, `whole trace is judged`, is an error. The bytes
// depend on the report alone.
void write_junit(std::ostream& out, const Report& report);

}  // namespace ttrace
