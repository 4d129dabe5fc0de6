// Which fault a run is to have, and the parts with it.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "../config.h"
#include "../parts.h"
#include "conditions.h"
#include "mutants.h"

#include <optional>
#include <string>

namespace megatron_mini::faults {

// One bug, one mutant or nothing.
struct Choice {
  std::string bug;  // its name; empty: none
  std::optional<double> bug_size;
  std::string bug_needs = "always";  // when it acts
  Mutant mutant;
};

// Throws UsageError with what the choice needs where it cannot act in that run.
void check_can_act(const Choice& choice, const RunFacts& run, const ModelConfig& model);

// All parts of a run. Throws InternalError for a bug that no table has.
[[nodiscard]] Parts parts_with(const Choice& choice);
[[nodiscard]] Parts parts_with_bug(const std::string& name, std::optional<double> size = {});

}  // namespace megatron_mini::faults
