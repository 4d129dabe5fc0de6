// The figures made from a plan's runs, and docs/figures/roc.json.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "roc/plan.h"
#include "roc/runner.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::roc {

// The largest of what `detector` needs in the series that `wanted` chooses; nothing if it does
// not find one of them at all, or where none is chosen.
[[nodiscard]] std::optional<double> worst(const Plan& plan,
                                          const Outcomes& outcomes,
                                          const std::string& detector,
                                          const std::function<bool(const Series&)>& wanted);

// Found at the mutant's own tensor, and found at any tensor of its operator.
[[nodiscard]] std::optional<double> figure_of(const Key& key,
                                              const Plan& plan,
                                              const Outcomes& outcomes);
[[nodiscard]] std::optional<double> figure_at_operator(const Key& key,
                                                       const Plan& plan,
                                                       const Outcomes& outcomes);

// Runs on one reference and its noise passes share what these happened to be, so that a reference
// counts as one case: it alarms where any of its runs does.
struct CleanScore {
  int runs = 0;    // with a verdict
  int alarms = 0;  // of a detector
  int references = 0;
  int alarming_references = 0;
};

// The figures of one precision, or of all.
[[nodiscard]] CleanScore clean_score(const Plan& plan,
                                     const Outcomes& outcomes,
                                     const std::string& detector,
                                     const std::string& precision = "");

// Tiers and rules that any clean run has had: T0, T1, then those of the whole
// report, then rules.
[[nodiscard]] std::vector<std::string> detectors_of(const Outcomes& outcomes);

// Why runs have no verdict, one line each.
[[nodiscard]] std::vector<std::string> problems_of(const Plan& plan, const Outcomes& outcomes);

// Every run has a verdict, at most 1 % of the clean ones raise an alarm, and every figure is there
// and meets its goal.
[[nodiscard]] bool goals_are_met(const Plan& plan, const Outcomes& outcomes);

// Keys of the plan at the top, null if something is not found at all; then every series.
// `command`: what made it.
[[nodiscard]] nlohmann::ordered_json json_of(const Plan& plan,
                                             const Outcomes& outcomes,
                                             const std::string& command);

}  // namespace ttrace::roc
