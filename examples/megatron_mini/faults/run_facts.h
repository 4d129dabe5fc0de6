// What a run is, in the words of bugs.yaml.
#pragma once

#include "../options.h"
#include "conditions.h"

namespace megatron_mini::faults {

// By the names of bugs.yaml's vocabulary.
[[nodiscard]] RunFacts facts_of(const Options& options, const Config& config);

}  // namespace megatron_mini::faults
