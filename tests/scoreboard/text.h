// Words and numbers that the scoreboard's writers share.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/outcome.h"
#include "scoreboard/plan.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::scoreboard {

[[nodiscard]] const Setting& setting_of(const Plan& plan, const CleanCase& run);

// "located", "found elsewhere", "redeclared" ...: the row of a bug in one word or two.
[[nodiscard]] std::string verdict_word(const CataloguedBug& bug, const BugOutcome& outcome);

// Why a run is not located, as the list of bugs says; empty if it does not.
[[nodiscard]] std::string reason_for(const CataloguedBug& bug, const std::string& precision);

// `digits` significant ones.
[[nodiscard]] std::string number(double value, int digits);
// One digit behind the point.
[[nodiscard]] std::string seconds(double value);
// "12 of 13 (92 %)"
[[nodiscard]] std::string share(int part, int whole);
// The 95 % bound of a rate: "7.4 %".
[[nodiscard]] std::string rate_below(int events, int trials);

// Text in a cell of a Markdown table, as code.
[[nodiscard]] std::string cell(const std::string& text);
[[nodiscard]] std::string code(const std::string& text);
// "missing_reduction, wrong_addends"
[[nodiscard]] std::string joined(const std::vector<std::string>& names);

// Those that the plan runs.
[[nodiscard]] std::vector<std::string> precisions_of(const Plan& plan);
// "obvious", "medium", "subtle"
[[nodiscard]] const std::vector<std::string>& difficulties();

// Clean runs that differ in the seed alone, by layout and precision.
struct CleanRow {
  int runs = 0;  // with a verdict
  int failed = 0;
  int alarms = 0;
  int alarms_without_forced = 0;
  int diagnoses = 0;
};
[[nodiscard]] std::map<std::pair<std::string, std::string>, CleanRow> clean_matrix(
    const Plan& plan, const Outcomes& outcomes);

}  // namespace ttrace::scoreboard
