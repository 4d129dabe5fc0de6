// Records of the modules around a finding: what a module returned, what may have been its input.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"

#include <functional>
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

// The wanted records before `id`, or all where it is not recorded: latest first, at most eight.
[[nodiscard]] std::vector<const Match*> records_before(
    const Evidence& evidence,
    const TensorId& id,
    const std::function<bool(const Match&)>& is_wanted);

// The inputs of the module that returned `output`: what it recorded as its inputs, and the outputs
// that it is known to have taken. Where neither is known, forward tensors of the same micro-batch
// as records_before() finds them: a module that was recognised by its parameters has no record of
// an input and no edge.
[[nodiscard]] std::vector<const Match*> inputs_of(const Evidence& evidence, const TensorId& output);

// Outputs of the same micro-batch that were recorded after the one at the place of `id`: what may
// have consumed it. At most eight.
[[nodiscard]] std::vector<const Match*> outputs_after(const Evidence& evidence, const TensorId& id);

}  // namespace ttrace
