// Programs that should compute in one type, and do not.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/report.h"
#include "trace/file/manifest.h"

namespace ttrace {

// Whether both programs were told to keep parameters in one type, the reference does, and the
// candidate keeps them in another one. False where one of them did not ask: nobody then knows what
// it meant to do. False for quantised operands next to parameters of the same type.
[[nodiscard]] bool misses_intention(const Manifest& reference, const Manifest& candidate);

// One sentence as the cause of every tensor of another type: what the candidate keeps parameters in
// where it misses the intention, else what most of its activations are, also as a remark. Nothing
// happens where neither differs, or no tensor has another type.
void name_other_precision(Report& report);

}  // namespace ttrace
