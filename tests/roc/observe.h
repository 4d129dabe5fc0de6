// Reads a check's reports as detectors see them. All that this program knows of a report stands in
// observe.cpp.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "roc/plan.h"
#include "roc/search.h"
#include "support/today_rules.h"

#include <nlohmann/json.hpp>

namespace ttrace::roc {

// Adds what `report` of a whole check says: kAnyTier where its first divergence is an own tensor,
// T0 and T1 where they found something at one; and each at_operator().
void add_check(const nlohmann::json& report, const Places& places, Observation& observation);

// Adds kWithoutForced where `report`, of the same passes without forced ones, has a finding at an
// own tensor.
void add_without_forced(const nlohmann::json& report,
                        const Places& places,
                        Observation& observation);

// Adds the rules that people use today, by their names, where the first tensor that fails one is an
// own one.
void add_rules(const testing::RuleHits& hits, const Places& places, Observation& observation);

}  // namespace ttrace::roc
