#include "scoreboard/text.h"

#include "support/clopper_pearson.h"

#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

namespace ttrace::scoreboard {

const Setting& setting_of(const Plan& plan, const CleanCase& run) {
  return plan.settings[run.setting];
}

std::string verdict_word(const CataloguedBug& bug, const BugOutcome& outcome) {
  if (!outcome.problem.empty()) {
    return "no verdict";
  }
  if (!outcome.triggered) {
    return "not triggered";
  }
  if (!outcome.found) {
    return "missed";
  }
  return outcome.located ? "located" : bug.redeclared ? "redeclared" : "found elsewhere";
}

std::string reason_for(const CataloguedBug& bug, const std::string& precision) {
  if (bug.redeclared) {
    const Redeclaration& changed = *bug.redeclared;
    const std::string& now = changed.expected.empty() ? changed.hint : changed.expected;
    return "declared anew on " + changed.date + ", after its first run, as `" + now +
           "`: " + changed.reason;
  }
  const auto found = bug.unlocated.find(precision);
  return found == bug.unlocated.end() ? "" : found->second;
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

std::string share(int part, int whole) {
  std::string text = std::to_string(part) + " of " + std::to_string(whole);
  return whole == 0 ? text
                    : text + " (" + number(std::round(1000.0 * part / whole) / 10.0, 4) + " %)";
}

std::string rate_below(int events, int trials) {
  const double percent = 100.0 * testing::clopper_pearson_upper(events, trials);
  return number(percent, percent < 99.5 ? 2 : 3) + " %";
}

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

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::vector<std::string> precisions_of(const Plan& plan) {
  std::set<std::string> all;
  for (const Setting& setting : plan.settings) {
    all.insert(setting.precision);
  }
  return {all.begin(), all.end()};
}

const std::vector<std::string>& difficulties() {
  static const std::vector<std::string> all = {"obvious", "medium", "subtle"};
  return all;
}

std::map<std::pair<std::string, std::string>, CleanRow> clean_matrix(const Plan& plan,
                                                                     const Outcomes& outcomes) {
  std::map<std::pair<std::string, std::string>, CleanRow> matrix;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const CleanOutcome& clean = outcomes.cleans[i];
    const Setting& setting = setting_of(plan, plan.cleans[i]);
    CleanRow& row = matrix[{describe(plan.cleans[i].layout, setting), setting.precision}];
    row.runs += clean.problem.empty() ? 1 : 0;
    row.failed += clean.problem.empty() ? 0 : 1;
    row.alarms += clean.alarm ? 1 : 0;
    row.alarms_without_forced += clean.alarm_without_forced ? 1 : 0;
    row.diagnoses += clean.diagnoses;
  }
  return matrix;
}

}  // namespace ttrace::scoreboard
