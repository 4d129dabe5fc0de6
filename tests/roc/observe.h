// Reads a check's report as detectors see it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "roc/search.h"
#include "support/today_rules.h"

#include <nlohmann/json.hpp>

namespace ttrace::roc {

// Adds the tiers that `report` has (by their names there), those of them that found something by
// their own figures, though another one may have folded it, and kAnyTier.
void add_tiers(const nlohmann::json& report, Observation& observation);

// Adds the rules that people use today, by their names.
void add_rules(const testing::RuleHits& hits, Observation& observation);

}  // namespace ttrace::roc
