// The outcomes of a plan's runs, and the figures made from them.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/plan.h"
#include "support/check_run.h"
#include "support/named_terms.h"
#include "support/today_rules.h"

#include <optional>
#include <string>
#include <vector>

namespace ttrace::scoreboard {

struct CleanOutcome {
  std::string problem;                // why there is no verdict: a crash, a hang, a refusal
  bool alarm = false;                 // a finding without a bug
  std::string first_id;               // of the alarm
  bool alarm_without_forced = false;  // as --no-forced would have judged
  std::string first_id_without_forced;
  int diagnoses = 0;  // probable causes that its report names
  testing::RuleHits rules;
  double seconds = 0.0;
};

// The result that --no-forced would have given for a bug.
struct WithoutForced {
  bool found = false;
  bool located = false;
  std::string first_id;
};

struct BugOutcome {
  std::string problem;
  bool triggered = false;    // bits of some record differ from the clean candidate's
  bool found = false;        // diverged, where the clean candidate does not
  bool located = false;      // found, and the first divergence is as declared before the first run
  bool hint_right = false;   // found, and the signature is as declared before the first run
  bool cause_exact = false;  // found, and the signature is the most exact one of the mechanism
  bool cause_right = false;  // found, and the signature is any one of the mechanism
  // Found, and whether the probable cause names the declared axis, factor and ranks; absent if none
  // is declared.
  std::optional<bool> terms_right;
  testing::NamedTerms named;
  WithoutForced without_forced;
  std::string first_id;
  std::string signature;
  std::string probable_cause;     // the report's sentence
  double error_over_bound = 0.0;  // of the first divergence; 0 if it has no number
  testing::RuleHits rules;
  double seconds = 0.0;
};

// One for each case of the plan.
struct Outcomes {
  std::vector<CleanOutcome> cleans;
  std::vector<BugOutcome> bugs;
  double seconds = 0.0;  // wall time of all
};

// Whether `id` was declared before the bug's first run. False for a bug whose declaration was
// changed later.
[[nodiscard]] bool is_located(const CataloguedBug& bug, const std::string& id);

// Whether the cause names every term that the bug declares: one of the names of its axis and no
// other axis, its factor, exactly its ranks. Terms that the bug does not declare are not looked at.
// Nothing if it declares none.
[[nodiscard]] std::optional<bool> terms_right(const CataloguedBug& bug,
                                              const testing::NamedTerms& named);

// The outcome of a finished check and of the same check without forced passes. The clean run of the
// same layout said `clean`.
[[nodiscard]] BugOutcome outcome_of(const CataloguedBug& bug,
                                    const CleanOutcome& clean,
                                    const testing::CheckResult& result,
                                    const testing::CheckResult& without_forced);

// The bugs that a figure covers; an empty member means all.
struct Part {
  std::string precision = {};
  std::string difficulty = {};
};

// Counts of bugs.
struct Score {
  int runs = 0;
  int failed = 0;  // of these, without a verdict
  int triggered = 0;
  int found = 0;                   // of those triggered
  int located = 0;                 // of those found
  int found_without_forced = 0;    // of those triggered
  int located_without_forced = 0;  // of those found without forced passes
  int hints_right = 0;             // of those found
  int hints_of_nothing = 0;        // of these, where no signature is named
  int causes_exact = 0;            // of those found
  int causes_right = 0;            // of those found
  int with_terms = 0;              // of those found, with a declared axis, factor or ranks
  int terms_right = 0;             // of these
};

[[nodiscard]] Score score_of(const Catalogue& catalogue,
                             const Plan& plan,
                             const Outcomes& outcomes,
                             const Part& part = {});

// Runs on one reference and its noise passes share what these happened to be, so that a reference
// counts as one case: it alarms where any of its runs does.
struct AlarmScore {
  int runs = 0;
  int references = 0;
};

struct CleanScore {
  int runs = 0;  // with a verdict
  int failed = 0;
  int references = 0;  // of the runs with a verdict
  AlarmScore alarms;
  AlarmScore without_forced;
  int diagnoses = 0;  // in all their reports
};

[[nodiscard]] CleanScore clean_score_of(const Plan& plan,
                                        const Outcomes& outcomes,
                                        const std::string& precision = "");

struct RuleScore {
  int found = 0;         // triggered bugs
  int told_apart = 0;    // found, and the clean run of the same layout passes
  int located = 0;       // of those found, where the first failing tensor is as declared
  int false_alarms = 0;  // clean runs
};

[[nodiscard]] RuleScore rule_score_of(const Catalogue& catalogue,
                                      const Plan& plan,
                                      const Outcomes& outcomes,
                                      std::size_t rule,
                                      const std::string& precision);

// The goals of a plan.
struct Goals {
  int found = 90;    // percent of the triggered bugs
  int located = 90;  // percent of those found
  int alarms = 1;    // percent of the clean runs
};
inline constexpr Goals kAllOfThem = {100, 100, 0};

// Every run has a verdict, every bug changes some bit, and the goals are reached.
[[nodiscard]] bool goals_are_met(const Catalogue& catalogue,
                                 const Plan& plan,
                                 const Outcomes& outcomes,
                                 const Goals& goals = {});

}  // namespace ttrace::scoreboard
