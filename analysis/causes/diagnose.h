// From what is wrong with one tensor to its probable cause.
//
// A finding says that a tensor is wrong and by how much. A signature is a hypothesis about how it
// came about: "every rank holds its own addend", "one micro-batch is missing", "the bias was added
// tp times". Each is tried on the records beside the finding; it counts only where it explains the
// error down to what round-off leaves. The first that does is the diagnosis, with the coefficients
// that were fitted. No signature: no diagnosis, and the report says only where to look.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/diagnosis.h"

#include <optional>

namespace ttrace {

class Evidence;

// What lies beside the finding decides; see signatures.h for each hypothesis.
[[nodiscard]] std::optional<Diagnosis> diagnose(const Evidence& evidence);

}  // namespace ttrace
