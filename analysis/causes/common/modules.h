// Records of the modules around a finding: what a module returned, what may have been its input.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/module_path.h"
#include "analysis/causes/common/evidence.h"

#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// Slot 0 of `module` in the finding's micro-batch.
[[nodiscard]] const Match* record_of(const Evidence& evidence,
                                     Kind kind,
                                     const std::string& module);
[[nodiscard]] std::optional<Values> candidate_of(const Evidence& evidence,
                                                 Kind kind,
                                                 const std::string& module);

// The bias of the module whose output the finding is; nothing where it has none of the length of
// the last dimension of `output`.
[[nodiscard]] std::optional<Values> bias_of(const Evidence& evidence,
                                            const Values& output,
                                            WhichRun run);

// What the reference's data of a micro-batch has of this role, [b, s] or [s, b], by row of a tensor
// of `shape`, [s, b, ...]; nothing where it has another size.
[[nodiscard]] std::optional<std::vector<double>> data_by_row(const Evidence& evidence,
                                                             Role role,
                                                             const std::vector<std::int64_t>& shape,
                                                             std::int64_t microbatch);

// The inputs of the module that returned `output`: what it recorded as its inputs, and the outputs
// that it is known to have taken. Where neither is known, forward tensors of the same micro-batch
// that were recorded before, latest first, at most eight: a module that was recognised by its
// parameters has no record of an input and no edge.
[[nodiscard]] std::vector<const Match*> inputs_of(const Evidence& evidence, const TensorId& output);

// Forward tensors of the same micro-batch that were recorded after `output`: what may have consumed
// it. At most eight.
[[nodiscard]] std::vector<const Match*> outputs_after(const Evidence& evidence,
                                                      const TensorId& output);

// All subsets of `axes` with one element or more, the smallest first.
[[nodiscard]] std::vector<std::vector<std::string>> subsets_of(
    const std::vector<std::string>& axes);

}  // namespace ttrace
