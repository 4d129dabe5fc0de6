// From what is wrong with one tensor to its probable cause.
//
// A finding says that a tensor is wrong and by how much. A hypothesis says how that came about:
// "every rank holds its own addend", "one micro-batch is missing", "the bias was added tp times".
// All hypotheses are tried on the records near the finding. One counts only if it explains the
// error down to what round-off leaves. Of those that count, the diagnosis is the one with the
// shortest description (common/hypothesis.h); one of another signature that is nearly as short is
// its runner-up. If none counts, there is no diagnosis, and the report says only where to look.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/hypothesis.h"
#include "analysis/findings/diagnosis.h"

#include <optional>
#include <span>
#include <variant>

namespace ttrace {

// A hypothesis; one that takes both sides is asked only where they can be laid side by side.
using Finder =
    std::variant<Hypotheses (*)(const Evidence&), Hypotheses (*)(const Evidence&, const Sides&)>;

// Every hypothesis that there is; see signatures.h. Their order means nothing.
[[nodiscard]] std::span<const Finder> all_finders();

[[nodiscard]] std::optional<Diagnosis> diagnose(const Evidence& evidence,
                                                std::span<const Finder> finders = all_finders());

}  // namespace ttrace
