// docs/figures/roc.md and docs/figures/roc.svg.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "roc/plan.h"
#include "roc/runner.h"

#include <string>

namespace ttrace::roc {

// Writes the page for readers. It shows `plot`, the name of the picture next to it, unless that is
// empty.
[[nodiscard]] std::string page_of(const Plan& plan,
                                  const Outcomes& outcomes,
                                  const std::string& command,
                                  const std::string& plot);

// One row per precision and mutant, one mark per detector at the smallest magnitude that it finds,
// at the right edge for those that find it at none.
[[nodiscard]] std::string plot_of(const Plan& plan, const Outcomes& outcomes);

// A few lines for the terminal.
[[nodiscard]] std::string summary_of(const Plan& plan, const Outcomes& outcomes);

}  // namespace ttrace::roc
