// The summary of a gate: one page for all layouts.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/gate/layout_result.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace ttrace {

struct GateResult {
  std::string file;                   // the gate's
  std::vector<LayoutResult> layouts;  // in the file's order
  std::vector<std::string> problems;  // of the gate as a whole: stale references, dead permissions

  // 1 if a layout diverged; else 2 if one could not be compared or there are problems; else 0.
  [[nodiscard]] int exit_code() const;
  // "1 of 3 layouts diverged"
  [[nodiscard]] std::string sentence() const;
};

// A few lines about one layout, as they are printed when its check ends.
void write_layout(std::ostream& out, const LayoutResult& result, const std::string& folder);

// For the summary of a CI job.
void write_gate_markdown(std::ostream& out, const GateResult& result);
// For a browser; it links to the reports next to it (NAME.html).
void write_gate_html(std::ostream& out, const GateResult& result);
// For programs.
void write_gate_json(std::ostream& out, const GateResult& result);

// JUnit for a layout that was not compared, so that its check wrote none: one test with an error.
void write_gate_junit(std::ostream& out, const LayoutResult& result);

}  // namespace ttrace
