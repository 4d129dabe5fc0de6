// What became of one layout of a gate, as its check reported it.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/gate/gate_file.h"

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace {

enum class Outcome { kWithinBound, kDiverged, kStale, kNotCompared, kNotRun };

// "within bound", "DIVERGED"
[[nodiscard]] std::string_view name_of(Outcome outcome);

struct LayoutResult {
  std::string name = {};
  std::string command = {};
  std::string reference = {};
  Outcome outcome = Outcome::kNotRun;
  double seconds = 0.0;
  std::size_t tensors = 0;
  std::size_t findings = 0;
  std::string first = {};   // id of the first divergence
  std::string cause = {};   // its probable cause, or what is wrong with it
  std::string source = {};  // the module's line
  std::string faulty = {};  // the first wrong operator with its line, where a zoom found one
  std::vector<std::string> not_seen = {};  // "updates (candidate): SENTENCE"
  std::vector<std::string> unused = {};    // options that applied to nothing
  std::vector<std::string> problems =
      {};  // why it could not be compared, or why its reference is stale
};

// Whether its check came to a verdict.
[[nodiscard]] bool was_compared(const LayoutResult& result);

// Adds what `folder`/report.json says. Throws FormatError for a damaged file.
void read_report(const std::string& folder, LayoutResult& result);

// Sentences about permissions that no layout needed, although all that they concern were compared,
// and about other options of checks that applied to nothing.
[[nodiscard]] std::vector<std::string> unneeded(const GateFile& file,
                                                const std::vector<LayoutResult>& results);

}  // namespace ttrace
