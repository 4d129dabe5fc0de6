// The ways to write a report down.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/findings/report.h"

#include <cstddef>
#include <iosfwd>
#include <string>

namespace ttrace {

struct TextOptions {
  bool color = false;         // for a terminal
  bool details = false;       // every number, and the table of findings
  std::size_t max_rows = 20;  // of that table
  std::size_t width = 0;      // columns at which lines are wrapped; 0: never
  std::string run = {};       // the folder of the check, for commands that look further; or empty
};

// For people, to be read in half a minute: the verdict and the place, why, the cause, the code and
// what to do, a line each; then the evidence, and what the verdict rests on.
void write_text(std::ostream& out, const Report& report, const TextOptions& options);

// For programs: every tensor, numbers that round-trip, NaN and Inf as strings. One line per tensor.
void write_json(std::ostream& out, const Report& report);

// For programs that read line by line: the header of the JSON report (type "report"), a line for
// every tensor (type "tensor"), and a last one (type "end") with their number, so that a file that
// was cut off is noticed. docs/report_lines.schema.json describes them.
void write_json_lines(std::ostream& out, const Report& report);

// For the summary of a CI job: GitHub's Markdown with verdict, first divergence, and a table of at
// most `max_rows` findings.
void write_markdown(std::ostream& out, const Report& report, std::size_t max_rows);

// For code scanning: SARIF 2.1.0. The first divergence and every further root is a result, at the
// line of the operator that a zoom named, or of the module. A verdict that covers only a part is a
// notification, and the run is said not to have been successful.
void write_sarif(std::ostream& out, const Report& report);

// For a browser: one page that needs nothing else, with the verdict, the model as a tree, charts
// of errors, the ranks and parts of the first divergence, and a table of all tensors.
void write_html(std::ostream& out, const Report& report);

// For CI servers: JUnit's XML, in the dialect that Jenkins, GitLab and GitHub's actions read. A
// suite is a module, a test one of its tensors, named by its id; findings have failed, what was not
// judged, is inherited or allowed is skipped. The suite of the first divergence comes first. Where
// the verdict covers only a part, one test more, `whole trace is judged`, is an error. `label`, if
// there is one, begins the name of every test: servers that know a test by its name tell several
// reports of one job apart. The bytes depend on report and label alone.
void write_junit(std::ostream& out, const Report& report, const std::string& label = "");

}  // namespace ttrace
