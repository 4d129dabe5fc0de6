// What came of the runs of a plan, and the figures made from them.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/plan.h"
#include "support/today_rules.h"

#include <optional>
#include <string>
#include <vector>

namespace ttrace::scoreboard {

struct CleanOutcome {
  std::string problem;   // why there is no verdict: a crash, a hang, a refusal; else empty
  bool alarm = false;    // a finding without a bug
  std::string first_id;  // of the alarm
  int diagnoses = 0;     // probable causes that its report names
  testing::RuleHits rules;
  double seconds = 0.0;
};

struct BugOutcome {
  std::string problem;
  bool triggered = false;   // bits of some record differ from the clean candidate's
  bool found = false;       // diverged, where the clean candidate does not
  bool located = false;     // found, and the first divergence is as declared
  bool hint_right = false;  // found, and the signature is as declared
  // Found, and whether the signature names the mechanism; absent where none is declared to.
  std::optional<bool> cause_right;
  std::string first_id;
  std::string signature;
  double error_over_bound = 0.0;  // of the first divergence; 0 where it has no number
  testing::RuleHits rules;
  double seconds = 0.0;
};

// One for each case of the plan.
struct Outcomes {
  std::vector<CleanOutcome> cleans;
  std::vector<BugOutcome> bugs;
  double seconds = 0.0;  // wall time of all
};

struct Score {
  int runs = 0;    // of bugs
  int failed = 0;  // of these, without a verdict
  int triggered = 0;
  int found = 0;         // of those triggered
  int located = 0;       // of those found
  int hints_right = 0;   // of those found
  int with_cause = 0;    // of those found, with a declared cause
  int causes_right = 0;  // of these
};

// Of all bugs, or of those run in one precision.
[[nodiscard]] Score score_of(const Plan& plan,
                             const Outcomes& outcomes,
                             const std::string& precision = "");

struct CleanScore {
  int runs = 0;  // with a verdict
  int failed = 0;
  int alarms = 0;
  int diagnoses = 0;  // in all their reports
};

[[nodiscard]] CleanScore clean_score_of(const Plan& plan,
                                        const Outcomes& outcomes,
                                        const std::string& precision = "");

struct RuleScore {
  int found = 0;         // triggered bugs
  int told_apart = 0;    // of those found, where the clean run beside passes
  int located = 0;       // of those found, where the first failing tensor is as declared
  int false_alarms = 0;  // clean runs
};

[[nodiscard]] RuleScore rule_score_of(const Catalogue& catalogue,
                                      const Plan& plan,
                                      const Outcomes& outcomes,
                                      std::size_t rule,
                                      const std::string& precision);

// Whether `id` is what was declared.
[[nodiscard]] bool is_expected(const CataloguedBug& bug, const std::string& id);

// Every run has a verdict, at least 90 % of the triggered bugs are found and 90 % of those at the
// declared tensor, and no more than 1 % of the clean runs raise an alarm.
[[nodiscard]] bool goals_are_met(const Plan& plan, const Outcomes& outcomes);

}  // namespace ttrace::scoreboard
