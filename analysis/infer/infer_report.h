// Reports of inferred placements, for people and for programs.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/infer/infer.h"

#include <cstddef>
#include <iosfwd>

namespace ttrace {

// Numbers, the table of classes, at most `max_rows` contradictions and as many tensors that nothing
// explains.
void write_text(std::ostream& out, const Inference& inference, std::size_t max_rows);

// Every tensor in a line of its own.
void write_json(std::ostream& out, const Inference& inference);

}  // namespace ttrace
