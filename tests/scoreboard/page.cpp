#include "scoreboard/page.h"

#include "scoreboard/summary_tables.h"
#include "scoreboard/text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

namespace ttrace::scoreboard {
namespace {

using testing::kRules;
using testing::kRuleTexts;

// Rows of the TTrace paper that the runs stand for.
struct PaperRuns {
  std::map<std::pair<std::string, std::size_t>, std::string> verdicts;  // by row and bug
  std::map<std::string, bool> found;  // by row: whether every run of its bugs found it
};

PaperRuns paper_runs(const Catalogue& catalogue, const Plan& plan, const Outcomes& outcomes) {
  PaperRuns runs;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const BugCase& run = plan.bugs[i];
    const CataloguedBug& bug = catalogue.bugs[run.bug];
    for (const std::string& row : bug.rows) {
      if (row.starts_with("T")) {
        std::string& text = runs.verdicts[{row, run.bug}];
        text += text.empty() ? "" : ", ";
        text += setting_of(plan, plan.cleans[run.clean]).precision + ": " +
                verdict_word(bug, outcomes.bugs[i]);
        runs.found.emplace(row, true).first->second &= outcomes.bugs[i].found;
      }
    }
  }
  return runs;
}

// "2 confirmed, 5 high", of the rows that were run.
std::string known_text(const Catalogue& catalogue, const PaperRuns& runs) {
  std::string text;
  for (const std::string known : {"confirmed", "high", "medium", "low"}) {
    const auto count = std::count_if(runs.found.begin(), runs.found.end(), [&](const auto& row) {
      const auto entry = catalogue.paper.find(row.first);
      return entry != catalogue.paper.end() && entry->second.known == known;
    });
    text += count == 0 ? "" : (text.empty() ? "" : ", ") + std::to_string(count) + " " + known;
  }
  return text;
}

void write_paper(std::ostream& out,
                 const Catalogue& catalogue,
                 const Plan& plan,
                 const Outcomes& outcomes) {
  const PaperRuns runs = paper_runs(catalogue, plan, outcomes);
  if (runs.verdicts.empty()) {
    return;
  }
  const auto all = std::count_if(
      runs.found.begin(), runs.found.end(), [](const auto& row) { return row.second; });
  out << "\n## The bugs of the TTrace paper\n\n"
      << share(static_cast<int>(all), static_cast<int>(runs.found.size()))
      << " rows found, in every run of every bug that stands for one. The rows follow short "
         "descriptions of the paper's table;\nwhich public bug a row stands for was inferred, and "
         "[bugs.md](../bugs.md#the-rows-of-the-ttrace-paper) says for each how certain that is: "
      << known_text(catalogue, runs) << ".\n\n"
      << "| row | known | bug | verdicts |\n|---|---|---|---|\n";
  for (const auto& [key, text] : runs.verdicts) {
    const auto entry = catalogue.paper.find(key.first);
    out << "| " << key.first << " | " << (entry == catalogue.paper.end() ? "" : entry->second.known)
        << " | `" << catalogue.bugs[key.second].name << "` | " << text << " |\n";
  }
}

// "axis tp, factor 2"
std::string terms_text(const CataloguedBug& bug) {
  std::vector<std::string> terms;
  if (!bug.axis.empty()) {
    terms.push_back("axis " + *bug.axis.rbegin());
  }
  if (bug.factor) {
    terms.push_back("factor " + number(*bug.factor, 3));
  }
  for (const int rank : bug.ranks) {
    terms.push_back("rank " + std::to_string(rank));
  }
  return joined(terms);
}

// Appends the declared signature if another one was reported.
std::string doubts_of(const CataloguedBug& bug, const BugOutcome& outcome) {
  if (!outcome.found) {
    return "";
  }
  std::string text = outcome.hint_right ? "" : " (declared: " + cell(bug.hint) + ")";
  if (!outcome.cause_exact) {
    text += " (exact: " + (bug.cause.empty() ? "no signature" : bug.cause.front()) + ")";
  }
  if (!outcome.cause_right && !bug.cause.empty()) {
    text += " (accepted: " + joined(bug.cause) + ")";
  }
  return outcome.terms_right.value_or(true) ? text : text + " (" + terms_text(bug) + " not named)";
}

void write_chapter(std::ostream& out,
                   const Catalogue& catalogue,
                   const Plan& plan,
                   const Outcomes& outcomes,
                   const std::string& chapter) {
  std::ostringstream table;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const CataloguedBug& bug = catalogue.bugs[plan.bugs[i].bug];
    if (bug.chapter != chapter) {
      continue;
    }
    const BugOutcome& outcome = outcomes.bugs[i];
    const CleanCase& clean = plan.cleans[plan.bugs[i].clean];
    const Setting& setting = setting_of(plan, clean);
    table << "| `" << bug.name << "` | " << cell(describe(clean.layout, setting)) << " | "
          << setting.precision << " | " << verdict_word(bug, outcome) << " | "
          << code(outcome.first_id) << " | "
          << (outcome.error_over_bound > 0.0 ? number(outcome.error_over_bound, 3) : "") << " | "
          << (outcome.found ? outcome.signature : "") << doubts_of(bug, outcome) << " | "
          << (outcome.without_forced.found ? code(outcome.without_forced.first_id) : "") << " | "
          << seconds(outcome.seconds) << " |\n";
  }
  if (!table.str().empty()) {
    out << "\n## " << chapter << " " << catalogue.chapters.at(chapter)
        << "\n\n| bug | run | precision | verdict | first divergence | error / bound | signature | "
           "with `--no-forced` | seconds |\n|---|---|---|---|---|---|---|---|---|\n"
        << table.str();
  }
}

// "B.10" behind "B.9".
std::vector<std::string> chapters_in_order(const Catalogue& catalogue) {
  std::vector<std::string> chapters;
  for (const auto& [chapter, title] : catalogue.chapters) {
    chapters.push_back(chapter);
  }
  std::sort(chapters.begin(), chapters.end(), [](const auto& left, const auto& right) {
    return std::pair(left.size(), left) < std::pair(right.size(), right);
  });
  return chapters;
}

void write_misses(std::ostream& out,
                  const Catalogue& catalogue,
                  const Plan& plan,
                  const Outcomes& outcomes) {
  out << "\n## What was not located, and why\n\n";
  std::ostringstream table;
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const BugOutcome& outcome = outcomes.bugs[i];
    const CataloguedBug& bug = catalogue.bugs[plan.bugs[i].bug];
    if (outcome.triggered && outcome.located) {
      continue;
    }
    const std::string& alarm = outcomes.cleans[plan.bugs[i].clean].first_id;
    std::string instead = outcome.first_id.empty() ? "nothing" : code(outcome.first_id);
    if (!outcome.problem.empty()) {
      instead = cell(outcome.problem);
    } else if (!alarm.empty()) {
      instead += ", but the clean run alarms too: " + code(alarm);
    }
    const std::string& precision = setting_of(plan, plan.cleans[plan.bugs[i].clean]).precision;
    const std::string reason = reason_for(bug, precision);
    table << "| `" << bug.name << "` | " << precision << " | " << verdict_word(bug, outcome)
          << " | " << code(bug.expected) << " | " << instead << " | "
          << (reason.empty() ? "not explained" : cell(reason)) << " |\n";
  }
  out << (table.str().empty() ? "Everything was.\n"
                              : "| bug | precision | verdict | declared | found instead | why "
                                "|\n|---|---|---|---|---|---|\n" +
                                    table.str());
}

void write_not_built(std::ostream& out, const Catalogue& catalogue, const Plan& plan) {
  if (plan.not_built.empty()) {
    return;
  }
  out << "\n## Declared, but not in the program yet: " << plan.not_built.size() << "\n\n";
  for (std::size_t i = 0; i < plan.not_built.size(); ++i) {
    out << (i == 0 ? "" : ", ") << "`" << catalogue.bugs[plan.not_built[i]].name << "`";
  }
  out << ".\n";
}

void write_rules(std::ostream& out,
                 const Catalogue& catalogue,
                 const Plan& plan,
                 const Outcomes& outcomes) {
  out << "\n## Rules that people use today, on the same traces\n\n"
         "A rule has one threshold and finds a bug when any pair of whole tensors fails it; it "
         "locates the bug when\nthe first failing pair, in the reference's order, is the declared "
         "one. They are given TTrace's merged tensors;\na tensor that is missing or contradicts "
         "itself between ranks is no pair for them. A rule that also fails the clean\nrun next to "
         "a "
         "bug cannot tell the two apart; TTrace's finds count only where the clean run passes.\n\n"
         "| rule | precision | found | distinguished from the clean run | located | false alarms "
         "|\n|---|---|---|---|---|---|\n";
  for (const std::string& precision : precisions_of(plan)) {
    const Score bugs = score_of(catalogue, plan, outcomes, {.precision = precision});
    const CleanScore clean = clean_score_of(plan, outcomes, precision);
    out << "| **TTrace** | " << precision << " | " << share(bugs.found, bugs.triggered) << " | "
        << share(bugs.found, bugs.triggered) << " | " << share(bugs.located, bugs.triggered)
        << " | " << share(clean.alarms.runs, clean.runs) << " |\n";
    for (std::size_t rule = 0; rule < kRules; ++rule) {
      const RuleScore score = rule_score_of(catalogue, plan, outcomes, rule, precision);
      out << "| " << kRuleTexts[rule].threshold << " | " << precision << " | "
          << share(score.found, bugs.triggered) << " | " << share(score.told_apart, bugs.triggered)
          << " | " << share(score.located, bugs.triggered) << " | "
          << share(score.false_alarms, clean.runs) << " |\n";
    }
  }
}

void write_clean(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  out << "\n## Clean runs\n\n| run | precision | runs | alarms | alarms with `--no-forced` | "
         "diagnoses |\n|---|---|---|---|---|---|\n";
  for (const auto& [key, row] : clean_matrix(plan, outcomes)) {
    out << "| " << cell(key.first) << " | " << key.second << " | " << row.runs << " | "
        << row.alarms << " | " << row.alarms_without_forced << " | " << row.diagnoses << " |\n";
  }
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const CleanOutcome& clean = outcomes.cleans[i];
    const Setting& setting = setting_of(plan, plan.cleans[i]);
    const std::string run = describe(plan.cleans[i].layout, setting) + ", " + setting.precision +
                            ", seed " + std::to_string(setting.seed);
    if (clean.alarm) {
      out << "\nAlarm: " << run << ": " << code(clean.first_id) << ".\n";
    }
    if (clean.alarm_without_forced) {
      out << "\nAlarm with `--no-forced`: " << run << ": " << code(clean.first_id_without_forced)
          << ".\n";
    }
    if (!clean.problem.empty()) {
      out << "\nNo verdict: " << run << ": " << clean.problem << "\n";
    }
  }
}

void write_head(std::ostream& out,
                const Plan& plan,
                const Outcomes& outcomes,
                const std::string& command) {
  out << "# Scoreboard\n\n"
         "Every silent bug of [bugs.yaml](../../examples/megatron_mini/bugs.yaml) that the example "
         "trainer has ([what they are](../bugs.md)), in the\ncheapest layout that triggers it, "
         "judged "
         "by `ttrace check` against a stored single-device reference with its noise passes.\n"
         "The same run without the bug must not raise an alarm.\n\n"
         "- Triggered: bits of some record differ from the clean run's.\n"
         "- Found: the verdict is DIVERGED, and that of the clean run is not.\n"
         "- At the declared tensor, or located: the whole id of the first divergence matches the "
         "pattern that was declared before the bug's first\n  run. A bug whose declaration was "
         "changed later counts as not located. Step and micro-batch of all patterns were added on "
         "2026-11-23,\n  after the runs.\n"
         "- With `--no-forced`: the same passes judged again without the forced ones, so that the "
         "bound from noise passes (T2) decides alone.\n"
         "- Error / bound: of the first divergence; below 1 where copies on several ranks differ "
         "although all are near the reference, empty\n  where nothing could be compared.\n\n"
         "Made by `"
      << command << "`: " << plan.bugs.size() << " runs of bugs and " << plan.cleans.size()
      << " clean ones in " << std::llround(outcomes.seconds)
      << " seconds; [scoreboard.json](scoreboard.json) has the same for programs.\n\n";
}

const char* const kCauses =
    "\n## Is the probable cause right?\n\n"
    "Four measures, each of all found runs:\n\n"
    "- Hint as declared: the [probable cause](../verdict.md#the-probable-cause) that the report "
    "names "
    "is the one that was declared before the bug's first\n  run; many declarations allow that none "
    "is named.\n"
    "- Most exact signature: it is the one that describes the mechanism best. These lists were "
    "written after the runs.\n"
    "- Any accepted signature: it is one of those that describe the mechanism. A bug that no "
    "signature describes counts as not right in both.\n"
    "- Axis, factor and ranks: of the found runs of bugs that declare any of the three, those "
    "whose "
    "probable cause names every one that is declared.\n  A second axis or rank counts as wrong. "
    "What a cause names beyond the declaration, a factor for example, does not count. They were\n"
    "  declared on 2026-11-23, after the runs.\n";

const char* const kDifficulties =
    "\n## By size of the error\n\n"
    "As declared: where the error begins it is at least 0.1 of the tensor's norm (obvious), at "
    "least "
    "0.01 (medium) or less (subtle).\n";

const char* const kAlarms =
    "\n## Alarms in clean runs\n\n"
    "Clean runs that share a reference share its noise passes, so they are no independent cases. A "
    "reference counts as one case and as an\nalarm where any of its runs raises one.\n";

}  // namespace

std::string page_of(const Catalogue& catalogue,
                    const Plan& plan,
                    const Outcomes& outcomes,
                    const std::string& command) {
  std::ostringstream out;
  write_head(out, plan, outcomes, command);
  write_found(out, catalogue, plan, outcomes);
  out << kCauses;
  write_causes(out, catalogue, plan, outcomes);
  out << kDifficulties;
  write_difficulties(out, catalogue, plan, outcomes);
  out << kAlarms;
  write_alarms(out, plan, outcomes);
  write_misses(out, catalogue, plan, outcomes);
  write_paper(out, catalogue, plan, outcomes);
  write_rules(out, catalogue, plan, outcomes);
  for (const std::string& chapter : chapters_in_order(catalogue)) {
    write_chapter(out, catalogue, plan, outcomes, chapter);
  }
  write_not_built(out, catalogue, plan);
  write_clean(out, plan, outcomes);
  return out.str();
}

std::string summary_of(const Catalogue& catalogue, const Plan& plan, const Outcomes& outcomes) {
  const Score bugs = score_of(catalogue, plan, outcomes);
  const CleanScore clean = clean_score_of(plan, outcomes);
  std::ostringstream out;
  out << bugs.runs << " runs of bugs: " << bugs.triggered << " triggered, "
      << share(bugs.found, bugs.triggered) << " found, " << share(bugs.located, bugs.found)
      << " of those at the declared tensor, " << bugs.failed << " without a verdict; "
      << plan.not_built.size() << " declared bugs are not in the program yet\n"
      << "with --no-forced: " << share(bugs.found_without_forced, bugs.triggered) << " found, "
      << share(bugs.located_without_forced, bugs.found_without_forced)
      << " of those at the declared tensor\n"
      << "causes: " << share(bugs.hints_right, bugs.found) << " as declared, "
      << share(bugs.causes_exact, bugs.found) << " most exact, "
      << share(bugs.causes_right, bugs.found) << " accepted, "
      << share(bugs.terms_right, bugs.with_terms) << " with axis, factor and ranks\n"
      << clean.runs << " clean runs on " << clean.references << " references: " << clean.alarms.runs
      << " alarms (" << clean.without_forced.runs << " with --no-forced) and " << clean.diagnoses
      << " diagnoses, rate of alarms below "
      << rate_below(clean.alarms.references, clean.references) << " of references (95 %), "
      << clean.failed << " without a verdict\n"
      << number(std::round(outcomes.seconds / 6.0) / 10.0, 4) << " minutes\n";
  return out.str();
}

}  // namespace ttrace::scoreboard
