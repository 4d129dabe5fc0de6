#include "scoreboard/page.h"

#include "support/clopper_pearson.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace ttrace::scoreboard {
namespace {

using Json = nlohmann::ordered_json;
using testing::kRules;
using testing::kRuleTexts;
using testing::RuleHits;

const Setting& setting_of(const Plan& plan, const CleanCase& run) {
  return plan.settings[run.setting];
}

// "located", "found elsewhere" ...: the row of a bug in one word or two.
std::string verdict_word(const BugOutcome& bug) {
  if (!bug.problem.empty()) {
    return "no verdict";
  }
  if (!bug.triggered) {
    return "not triggered";
  }
  return bug.located ? "located" : bug.found ? "found elsewhere" : "missed";
}

std::string number(double value, int digits) {
  std::ostringstream out;
  out << std::setprecision(digits) << value;
  return out.str();
}

std::string seconds(double value) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << value;
  return out.str();
}

// "12 of 13 (92 %)"
std::string share(int part, int whole) {
  std::string text = std::to_string(part) + " of " + std::to_string(whole);
  return whole == 0 ? text
                    : text + " (" + number(std::round(1000.0 * part / whole) / 10.0, 4) + " %)";
}

// Text in a cell of a table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  }
  return result;
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + cell(text) + "`";
}

bool is_located(const BugOutcome& outcome) {
  return outcome.triggered && outcome.located;
}

// Why a run is not located, as the list of bugs tells; empty where it does not.
std::string reason_for(const CataloguedBug& bug, const std::string& precision) {
  const auto found = bug.unlocated.find(precision);
  return found == bug.unlocated.end() ? "" : found->second;
}

std::vector<std::string> precisions_of(const Plan& plan) {
  std::set<std::string> all;
  for (const Setting& setting : plan.settings) {
    all.insert(setting.precision);
  }
  return {all.begin(), all.end()};
}

// Clean runs that differ in the seed alone, by layout and precision.
std::map<std::pair<std::string, std::string>, CleanScore> clean_matrix(const Plan& plan,
                                                                       const Outcomes& outcomes) {
  std::map<std::pair<std::string, std::string>, CleanScore> matrix;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const Setting& setting = setting_of(plan, plan.cleans[i]);
    CleanScore& entry = matrix[{describe(plan.cleans[i].layout, setting), setting.precision}];
    entry.runs += outcomes.cleans[i].problem.empty() ? 1 : 0;
    entry.failed += outcomes.cleans[i].problem.empty() ? 0 : 1;
    entry.alarms += outcomes.cleans[i].alarm ? 1 : 0;
    entry.diagnoses += outcomes.cleans[i].diagnoses;
  }
  return matrix;
}

Json rules_json(const RuleHits& hits) {
  Json json = Json::object();
  for (std::size_t rule = 0; rule < kRules; ++rule) {
    json[std::string(kRuleTexts[rule].name)] = hits[rule].empty() ? Json() : Json(hits[rule]);
  }
  return json;
}

Json bug_json(const Catalogue& catalogue,
              const Plan& plan,
              const Outcomes& outcomes,
              std::size_t index) {
  const BugCase& run = plan.bugs[index];
  const CataloguedBug& bug = catalogue.bugs[run.bug];
  const BugOutcome& outcome = outcomes.bugs[index];
  const CleanCase& clean = plan.cleans[run.clean];
  const Setting& setting = setting_of(plan, clean);
  const std::string reason = reason_for(bug, setting.precision);
  return {{"bug", bug.name},
          {"chapter", bug.chapter},
          {"source", bug.source},
          {"layout", describe(clean.layout, setting)},
          {"precision", setting.precision},
          {"expected", bug.expected},
          {"triggered", outcome.triggered},
          {"found", outcome.found},
          {"located", outcome.located},
          {"hint_right", outcome.hint_right},
          {"seconds", std::round(outcome.seconds * 100.0) / 100.0},
          {"first_divergence", outcome.first_id.empty() ? Json() : Json(outcome.first_id)},
          {"error_over_bound",
           std::isfinite(outcome.error_over_bound) ? Json(outcome.error_over_bound) : Json("Inf")},
          {"hint", bug.hint},
          {"cause", bug.cause},
          {"cause_right", outcome.cause_right ? Json(*outcome.cause_right) : Json()},
          {"signature", outcome.signature},
          {"problem", outcome.problem.empty() ? Json() : Json(outcome.problem)},
          {"reason", is_located(outcome) ? Json() : Json(reason_for(bug, setting.precision))},
          {"first_failing_by_rule", rules_json(outcome.rules)}};
}

Json rule_json(const Catalogue& catalogue,
               const Plan& plan,
               const Outcomes& outcomes,
               std::size_t rule,
               const std::string& precision) {
  const RuleScore score = rule_score_of(catalogue, plan, outcomes, rule, precision);
  return {{"rule", kRuleTexts[rule].name},
          {"precision", precision},
          {"triggered", score_of(plan, outcomes, precision).triggered},
          {"found", score.found},
          {"told_apart", score.told_apart},
          {"located", score.located},
          {"clean_runs", clean_score_of(plan, outcomes, precision).runs},
          {"false_alarms", score.false_alarms}};
}

// --- the page ----------------------------------------------------------------------------------

void write_summary(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  out << "| precision | bugs run | triggered | found, of those | at the declared tensor, of those "
         "| "
         "hint as declared | named cause right | clean runs | alarms | rate of alarms below "
         "(95 %) | diagnoses in clean runs |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n";
  std::vector<std::string> rows = precisions_of(plan);
  rows.emplace_back();  // all
  for (const std::string& precision : rows) {
    const Score bugs = score_of(plan, outcomes, precision);
    const CleanScore clean = clean_score_of(plan, outcomes, precision);
    out << "| " << (precision.empty() ? "all" : precision) << " | " << bugs.runs << " | "
        << bugs.triggered << " | " << share(bugs.found, bugs.triggered) << " | "
        << share(bugs.located, bugs.found) << " | " << share(bugs.hints_right, bugs.found) << " | "
        << share(bugs.causes_right, bugs.with_cause) << " | " << clean.runs << " | " << clean.alarms
        << " | " << number(100.0 * testing::clopper_pearson_upper(clean.alarms, clean.runs), 2)
        << " % | " << clean.diagnoses << " |\n";
  }
}

// Rows of the TTrace paper: every bug that stands for one, and how its runs ended.
void write_paper(std::ostream& out,
                 const Catalogue& catalogue,
                 const Plan& plan,
                 const Outcomes& outcomes) {
  std::map<std::pair<std::string, std::size_t>, std::string> verdicts;  // by row and bug
  std::map<std::string, bool> found;  // whether every run of a row's bugs found it
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    const BugCase& run = plan.bugs[i];
    for (const std::string& row : catalogue.bugs[run.bug].rows) {
      if (row.starts_with("T")) {
        std::string& text = verdicts[{row, run.bug}];
        text += text.empty() ? "" : ", ";
        text += setting_of(plan, plan.cleans[run.clean]).precision + ": " +
                verdict_word(outcomes.bugs[i]);
        found.emplace(row, true).first->second &= outcomes.bugs[i].found;
      }
    }
  }
  if (verdicts.empty()) {
    return;
  }
  const auto all =
      std::count_if(found.begin(), found.end(), [](const auto& r) { return r.second; });
  out << "\n## The bugs of the TTrace paper\n\n"
      << share(static_cast<int>(all), static_cast<int>(found.size()))
      << " found, in every run of every bug that stands for one.\n\n"
         "| row | bug | verdicts |\n|---|---|---|\n";
  for (const auto& [key, text] : verdicts) {
    out << "| " << key.first << " | `" << catalogue.bugs[key.second].name << "` | " << text
        << " |\n";
  }
}

// "missing_reduction, wrong_addends"
std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
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
          << setting.precision << " | " << verdict_word(outcome) << " | " << code(outcome.first_id)
          << " | " << (outcome.error_over_bound > 0.0 ? number(outcome.error_over_bound, 3) : "")
          << " | " << (outcome.found ? outcome.signature : "")
          << (outcome.found && !outcome.hint_right ? " (declared: " + cell(bug.hint) + ")" : "")
          << (!outcome.cause_right.value_or(true) ? " (cause: " + joined(bug.cause) + ")" : "")
          << " | " << seconds(outcome.seconds) << " |\n";
  }
  if (!table.str().empty()) {
    out << "\n## " << chapter << " " << catalogue.chapters.at(chapter)
        << "\n\n| bug | run | precision | verdict | first divergence | error / bound | signature | "
           "seconds |\n|---|---|---|---|---|---|---|---|\n"
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
    if (is_located(outcome)) {
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
    table << "| `" << bug.name << "` | " << precision << " | " << verdict_word(outcome) << " | "
          << code(bug.expected) << " | " << instead << " | "
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
         "itself between ranks is no pair for them. A rule that also fails the clean\nrun beside a "
         "bug has not told the two apart; TTrace's finds count only where the clean run passes.\n\n"
         "| rule | precision | found | told from the clean run | located | false alarms "
         "|\n|---|---|---|---|---|---|\n";
  for (const std::string& precision : precisions_of(plan)) {
    const Score bugs = score_of(plan, outcomes, precision);
    const CleanScore clean = clean_score_of(plan, outcomes, precision);
    out << "| **TTrace** | " << precision << " | " << share(bugs.found, bugs.triggered) << " | "
        << share(bugs.found, bugs.triggered) << " | " << share(bugs.located, bugs.triggered)
        << " | " << share(clean.alarms, clean.runs) << " |\n";
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
  out << "\n## Clean runs\n\n| run | precision | runs | alarms | diagnoses "
         "|\n|---|---|---|---|---|\n";
  for (const auto& [key, score] : clean_matrix(plan, outcomes)) {
    out << "| " << cell(key.first) << " | " << key.second << " | " << score.runs << " | "
        << score.alarms << " | " << score.diagnoses << " |\n";
  }
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const CleanOutcome& clean = outcomes.cleans[i];
    const Setting& setting = setting_of(plan, plan.cleans[i]);
    const std::string run = describe(plan.cleans[i].layout, setting) + ", " + setting.precision +
                            ", seed " + std::to_string(setting.seed);
    if (clean.alarm) {
      out << "\nAlarm: " << run << ": " << code(clean.first_id) << ".\n";
    }
    if (!clean.problem.empty()) {
      out << "\nNo verdict: " << run << ": " << clean.problem << "\n";
    }
  }
}

}  // namespace

nlohmann::ordered_json json_of(const Catalogue& catalogue,
                               const Plan& plan,
                               const Outcomes& outcomes,
                               const std::string& command) {
  Json json = {{"bugs", Json::array()}, {"clean", Json::array()}, {"rules", Json::array()}};
  for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
    json["bugs"].push_back(bug_json(catalogue, plan, outcomes, i));
  }
  for (const auto& [key, score] : clean_matrix(plan, outcomes)) {
    json["clean"].push_back({{"layout", key.first},
                             {"precision", key.second},
                             {"runs", score.runs},
                             {"alarms", score.alarms},
                             {"diagnoses", score.diagnoses},
                             {"failed", score.failed}});
  }
  for (const std::string& precision : precisions_of(plan)) {
    for (std::size_t rule = 0; rule < kRules; ++rule) {
      json["rules"].push_back(rule_json(catalogue, plan, outcomes, rule, precision));
    }
  }
  json["not_built"] = Json::array();
  for (const std::size_t bug : plan.not_built) {
    json["not_built"].push_back(catalogue.bugs[bug].name);
  }
  const Score score = score_of(plan, outcomes);
  json["cause_declared"] = score.with_cause;
  json["cause_right"] = score.causes_right;
  json["seconds"] = std::round(outcomes.seconds);
  json["command"] = command;
  return json;
}

std::string page_of(const Catalogue& catalogue,
                    const Plan& plan,
                    const Outcomes& outcomes,
                    const std::string& command) {
  std::ostringstream out;
  out << "# Scoreboard\n\n"
         "Every silent bug of [bugs.yaml](../examples/megatron_mini/bugs.yaml) that the example "
         "trainer has ([what they are](bugs.md)), in the\ncheapest layout that triggers it, judged "
         "by `ttrace check` against a stored single-device reference with its noise passes; "
         "beside\n"
         "it the same run without the bug, which must not raise an alarm.\n\n"
         "- Triggered: bits of some record differ from the clean run's.\n"
         "- Found: the verdict is DIVERGED, and that of the clean run is not.\n"
         "- At the declared tensor, or located: the first divergence matches the pattern that was "
         "declared before the bug's first run.\n"
         "- Hint as declared: the [probable cause](verdict.md#the-probable-cause) that the report "
         "names, or that it names none, is the declared one.\n"
         "- Named cause right: of the found runs whose bug has a mechanism that a signature "
         "describes (`cause` in bugs.yaml), those whose\n  probable cause is one of these "
         "signatures.\n"
         "- Error / bound: of the first divergence; below 1 where copies on several ranks differ "
         "although all are near the reference, empty\n  where nothing could be compared.\n\n"
         "Made by `"
      << command << "`: " << plan.bugs.size() << " runs of bugs and " << plan.cleans.size()
      << " clean ones in " << std::llround(outcomes.seconds)
      << " seconds; [scoreboard.json](scoreboard.json) has the same for programs.\n\n";
  write_summary(out, plan, outcomes);
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

std::string summary_of(const Plan& plan, const Outcomes& outcomes) {
  const Score bugs = score_of(plan, outcomes);
  const CleanScore clean = clean_score_of(plan, outcomes);
  std::ostringstream out;
  out << bugs.runs << " runs of bugs: " << bugs.triggered << " triggered, "
      << share(bugs.found, bugs.triggered) << " found, " << share(bugs.located, bugs.found)
      << " of those at the declared tensor, " << share(bugs.hints_right, bugs.found)
      << " with the declared hint, " << share(bugs.causes_right, bugs.with_cause)
      << " with a right cause, " << bugs.failed << " without a verdict; " << plan.not_built.size()
      << " declared bugs are not in the program yet\n"
      << clean.runs << " clean runs: " << clean.alarms << " alarms and " << clean.diagnoses
      << " diagnoses, rate of alarms below "
      << number(100.0 * testing::clopper_pearson_upper(clean.alarms, clean.runs), 2)
      << " % (95 %), " << clean.failed << " without a verdict\n"
      << number(std::round(outcomes.seconds / 6.0) / 10.0, 4) << " minutes\n";
  return out.str();
}

}  // namespace ttrace::scoreboard
