#include "scoreboard/outcome.h"

#include "trace/base/pattern.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace ttrace::scoreboard {
namespace {

constexpr double kSameFactor = 0.005;  // relative, and of 1 for a factor of 0

bool is_of(const Plan& plan, const CleanCase& run, const std::string& precision) {
  return precision.empty() || plan.settings[run.setting].precision == precision;
}

bool is_same_factor(double declared, const std::optional<double>& named) {
  const double scale = declared == 0.0 ? 1.0 : std::abs(declared);
  return named && std::abs(*named - declared) <= kSameFactor * scale;
}

void add(const BugOutcome& bug, Score& score) {
  const auto count = [](bool holds) { return holds ? 1 : 0; };
  ++score.runs;
  score.failed += count(!bug.problem.empty());
  score.triggered += count(bug.triggered);
  score.found += count(bug.found);
  score.located += count(bug.located);
  score.found_without_forced += count(bug.without_forced.found);
  score.located_without_forced += count(bug.without_forced.located);
  score.hints_right += count(bug.hint_right);
  score.hints_of_nothing += count(bug.hint_right && bug.signature == "none");
  score.causes_exact += count(bug.cause_exact);
  score.causes_right += count(bug.cause_right);
  score.with_terms += count(bug.terms_right.has_value());
  score.terms_right += count(bug.terms_right.value_or(false));
}

}  // namespace

bool is_located(const CataloguedBug& bug, const std::string& id) {
  return !bug.redeclared && Pattern("expected of " + bug.name, bug.expected).matches(id);
}

std::optional<bool> terms_right(const CataloguedBug& bug, const testing::NamedTerms& named) {
  if (bug.axis.empty() && !bug.factor && bug.ranks.empty()) {
    return std::nullopt;
  }
  const bool axis =
      bug.axis.empty() || (!named.axes.empty() && std::ranges::includes(bug.axis, named.axes));
  const bool factor = !bug.factor || is_same_factor(*bug.factor, named.factor);
  return axis && factor && (bug.ranks.empty() || bug.ranks == named.ranks);
}

BugOutcome outcome_of(const CataloguedBug& bug,
                      const CleanOutcome& clean,
                      const testing::CheckResult& result,
                      const testing::CheckResult& without_forced) {
  BugOutcome outcome;
  outcome.seconds = result.seconds;
  outcome.problem = result.problem.empty() ? without_forced.problem : result.problem;
  outcome.first_id = result.first_id;
  outcome.signature = result.signature;
  outcome.probable_cause = result.probable_cause;
  outcome.error_over_bound = result.error_over_bound;
  outcome.found = result.diverged && !clean.alarm;
  outcome.located = outcome.found && is_located(bug, result.first_id);
  outcome.without_forced.first_id = without_forced.first_id;
  outcome.without_forced.found = without_forced.diverged && !clean.alarm_without_forced;
  outcome.without_forced.located =
      outcome.without_forced.found && is_located(bug, without_forced.first_id);
  if (outcome.found) {
    outcome.named = testing::named_terms(result.report);
    outcome.hint_right = Pattern("hint of " + bug.name, bug.hint).matches(result.signature);
    outcome.cause_exact = !bug.cause.empty() && bug.cause.front() == result.signature;
    outcome.cause_right = std::ranges::find(bug.cause, result.signature) != bug.cause.end();
    outcome.terms_right = terms_right(bug, outcome.named);
  }
  return outcome;
}

Score score_of(const Catalogue& catalogue,
               const Plan& plan,
               const Outcomes& outcomes,
               const Part& part) {
  Score score;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const CataloguedBug& bug = catalogue.bugs[plan.bugs[i].bug];
    if (is_of(plan, plan.cleans[plan.bugs[i].clean], part.precision) &&
        (part.difficulty.empty() || bug.difficulty == part.difficulty)) {
      add(outcomes.bugs[i], score);
    }
  }
  return score;
}

CleanScore clean_score_of(const Plan& plan,
                          const Outcomes& outcomes,
                          const std::string& precision) {
  CleanScore score;
  std::set<std::size_t> references;
  std::set<std::size_t> alarming;
  std::set<std::size_t> without_forced;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    if (!is_of(plan, plan.cleans[i], precision)) {
      continue;
    }
    const CleanOutcome& clean = outcomes.cleans[i];
    const std::size_t reference = plan.cleans[i].setting;
    score.diagnoses += clean.diagnoses;
    if (!clean.problem.empty()) {
      ++score.failed;
      continue;
    }
    ++score.runs;
    references.insert(reference);
    if (clean.alarm) {
      ++score.alarms.runs;
      alarming.insert(reference);
    }
    if (clean.alarm_without_forced) {
      ++score.without_forced.runs;
      without_forced.insert(reference);
    }
  }
  score.references = static_cast<int>(references.size());
  score.alarms.references = static_cast<int>(alarming.size());
  score.without_forced.references = static_cast<int>(without_forced.size());
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
      score.located += is_located(catalogue.bugs[plan.bugs[i].bug], first) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const bool flagged = !outcomes.cleans[i].rules[rule].empty();
    score.false_alarms += flagged && is_of(plan, plan.cleans[i], precision) ? 1 : 0;
  }
  return score;
}

bool goals_are_met(const Catalogue& catalogue,
                   const Plan& plan,
                   const Outcomes& outcomes,
                   const Goals& goals) {
  const Score bugs = score_of(catalogue, plan, outcomes);
  const CleanScore clean = clean_score_of(plan, outcomes);
  return bugs.failed == 0 && clean.failed == 0 && bugs.triggered == bugs.runs &&
         100 * bugs.found >= goals.found * bugs.triggered &&
         100 * bugs.located >= goals.located * bugs.found &&
         100 * clean.alarms.runs <= goals.alarms * clean.runs;
}

}  // namespace ttrace::scoreboard
