// Proposes a rename map for two programs: from the values of their tensors, and where these do not
// decide, from shapes, order and names. What nothing decides is a question, never a guess.
//
// Parameters come first: equal values in any arrangement, rows of parts, gradients of constants,
// then what must run after what. Modules follow from their parameters, and activations from their
// modules and values.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/entries.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <string>

namespace ttrace {

struct MapGuess {
  std::string text;         // of the map, with comments
  MapEntries entries;       // what it says; questions are entries with `open`
  bool comparable = false;  // both programs ran with the same weights and data
  std::size_t tensors = 0;  // of both sides, in one micro-batch: all
  std::size_t certain = 0;
  std::size_t likely = 0;
  std::size_t open = 0;  // that nothing decides
};

// Throws UsageError for a trace without steps; FormatError for records that contradict their files.
[[nodiscard]] MapGuess guess_map(const Trace& reference, const Trace& candidate);

}  // namespace ttrace
