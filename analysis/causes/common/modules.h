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

// Forward tensors of the same micro-batch that the candidate recorded before `output`, latest
// first: what may have been the input of the module that returned it. At most eight.
[[nodiscard]] std::vector<const Match*> forward_before(const Evidence& evidence,
                                                       const TensorId& output);

}  // namespace ttrace
