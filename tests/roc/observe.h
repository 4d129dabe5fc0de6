// Reads a check's reports as detectors see them. All that this program knows of a report stands in
// observe.cpp.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "roc/search.h"
#include "support/today_rules.h"

#include <nlohmann/json.hpp>

#include <string>

namespace ttrace::roc {

// `own`: regular expression for the whole ids of the tensors where a find counts, the mutant's; of
// a clean run empty, where every finding counts.

// Adds what `report` of a whole check says: kAnyTier where its first divergence counts, T0 and T1
// where they found something at a tensor that counts.
void add_check(const nlohmann::json& report, const std::string& own, Observation& observation);

// Adds kWithoutForced where `report`, of the same passes without forced ones, has a finding at a
// tensor that counts.
void add_without_forced(const nlohmann::json& report,
                        const std::string& own,
                        Observation& observation);

// Adds the rules that people use today, by their names, where the first tensor that fails one
// counts.
void add_rules(const testing::RuleHits& hits, const std::string& own, Observation& observation);

}  // namespace ttrace::roc
