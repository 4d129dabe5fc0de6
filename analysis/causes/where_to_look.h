// Which part of the candidate a finding accuses.
//
// The gradient of a tensor sums over all its consumers, so a wrong one accuses the backward of its
// consumers; a wrong gradient of a parameter accuses the owner; a wrong main gradient with clean
// parameter gradients accuses what lies between backward and optimizer. Facts only: what the
// records near the finding show.
#pragma once

#include "analysis/findings/report.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <span>
#include <string>

namespace ttrace {

// One sentence on tensors[index], the first divergence: everything before it is within bound.
[[nodiscard]] std::string where_to_look(std::span<const TensorVerdict> tensors,
                                        std::size_t index,
                                        const Trace& candidate);

}  // namespace ttrace
