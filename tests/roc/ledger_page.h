// docs/figures/ledger.md, made of the ledger of limits and an ablation.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "roc/ablation.h"

#include <string>

namespace ttrace::roc {

// `command`: what made the ablation.
[[nodiscard]] std::string ledger_page(const Ablation& ablation, const std::string& command);

}  // namespace ttrace::roc
