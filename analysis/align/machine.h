// What the machines of two runs did to numbers: may their F32 products be compared, and what else
// was unlike? trace/base/numerics.h has the keys.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>

#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// Whether its parameters lay on one; false where the trace does not say.
[[nodiscard]] bool runs_on_accelerator(const Manifest& manifest);

// The type whose mantissa the operands of an F32 program's products were rounded to: F16 for TF32,
// which has as many bits, or BF16. Nothing where they kept theirs, and for other precisions.
[[nodiscard]] std::optional<ElementType> rounded_operands(const Manifest& manifest);

// The coarsest type that a run rounds to: what its products round their operands to, or its
// precision's. Throws UsageError for a precision that nobody knows.
[[nodiscard]] ElementType coarsest_type(const Trace& trace);

// Throws UsageError if one of two F32 programs rounded the operands of its products and the other
// did not, or to another type: no noise pass moves values by as much.
void require_same_products(const Manifest& reference, const Manifest& candidate);

// One sentence where both rounded them alike, and one for each setting that differs and may matter:
// not the number of threads, which belongs to the layout, and no setting of CUDA between CPU runs.
[[nodiscard]] std::vector<std::string> machine_remarks(const Manifest& reference,
                                                       const Manifest& candidate);

// Whether it ran on an accelerator that may add up in another order on every run.
[[nodiscard]] bool may_be_irreproducible(const Manifest& manifest);

// "machine: device cpu, f32_products f32, ..." and a line break; empty for a trace of an earlier
// version.
[[nodiscard]] std::string machine_line(const Manifest& manifest);

}  // namespace ttrace
