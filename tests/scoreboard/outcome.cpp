#include "scoreboard/outcome.h"

#include <regex>

namespace ttrace::scoreboard {
namespace {

bool is_of(const Plan& plan, const CleanCase& run, const std::string& precision) {
  return precision.empty() || plan.settings[run.setting].precision == precision;
}

}  // namespace

Score score_of(const Plan& plan, const Outcomes& outcomes, const std::string& precision) {
  Score score;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    if (!is_of(plan, plan.cleans[plan.bugs[i].clean], precision)) {
      continue;
    }
    const BugOutcome& bug = outcomes.bugs[i];
    ++score.runs;
    score.failed += bug.problem.empty() ? 0 : 1;
    score.triggered += bug.triggered ? 1 : 0;
    score.found += bug.found ? 1 : 0;
    score.located += bug.located ? 1 : 0;
    score.hints_right += bug.hint_right ? 1 : 0;
    score.with_cause += bug.cause_right ? 1 : 0;
    score.causes_right += bug.cause_right.value_or(false) ? 1 : 0;
  }
  return score;
}

CleanScore clean_score_of(const Plan& plan,
                          const Outcomes& outcomes,
                          const std::string& precision) {
  CleanScore score;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    if (!is_of(plan, plan.cleans[i], precision)) {
      continue;
    }
    const CleanOutcome& clean = outcomes.cleans[i];
    score.runs += clean.problem.empty() ? 1 : 0;
    score.failed += clean.problem.empty() ? 0 : 1;
    score.alarms += clean.alarm ? 1 : 0;
    score.diagnoses += clean.diagnoses;
  }
  return score;
}

RuleScore rule_score_of(const Catalogue& catalogue,
                        const Plan& plan,
                        const Outcomes& outcomes,
                        std::size_t rule,
                        const std::string& precision) {
  RuleScore score;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const std::string& first = outcomes.bugs[i].rules[rule];
    if (is_of(plan, plan.cleans[plan.bugs[i].clean], precision) && outcomes.bugs[i].triggered &&
        !first.empty()) {
      ++score.found;
      score.told_apart += outcomes.cleans[plan.bugs[i].clean].rules[rule].empty() ? 1 : 0;
      score.located += is_expected(catalogue.bugs[plan.bugs[i].bug], first) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const bool flagged = !outcomes.cleans[i].rules[rule].empty();
    score.false_alarms += flagged && is_of(plan, plan.cleans[i], precision) ? 1 : 0;
  }
  return score;
}

bool is_expected(const CataloguedBug& bug, const std::string& id) {
  return std::regex_search(id, std::regex(bug.expected));
}

bool goals_are_met(const Plan& plan, const Outcomes& outcomes) {
  const Score bugs = score_of(plan, outcomes);
  const CleanScore clean = clean_score_of(plan, outcomes);
  return bugs.failed == 0 && clean.failed == 0 && 10 * bugs.found >= 9 * bugs.triggered &&
         10 * bugs.located >= 9 * bugs.found && 100 * clean.alarms <= clean.runs;
}

}  // namespace ttrace::scoreboard
