#include "roc/figures.h"

#include "support/today_rules.h"

#include <algorithm>
#include <set>

namespace ttrace::roc {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson number_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

OrderedJson point_json(const Point& point) {
  return {{"magnitude", point.magnitude},
          {"runs", point.runs},
          {"changed", point.changed},
          {"flagged", point.flagged}};
}

OrderedJson series_json(const Series& series, const SeriesOutcome& outcome) {
  OrderedJson json = {{"mutant", series.mutant},
                      {"layer", series.layer ? OrderedJson(*series.layer) : OrderedJson()},
                      {"precision", series.precision},
                      {"weights", name_of(series.weights)}};
  OrderedJson smallest = OrderedJson::object();
  for (const auto& [detector, magnitude] : outcome.smallest) {
    smallest[detector] = number_or_null(magnitude);
  }
  json["smallest"] = smallest;
  OrderedJson points = OrderedJson::array();
  for (const Point& point : outcome.points) {
    points.push_back(point_json(point));
  }
  json["points"] = points;
  return json;
}

OrderedJson clean_json(const Setting& setting,
                       const std::string& layout,
                       const Observation& clean) {
  return {{"precision", setting.precision},
          {"weights", name_of(setting.weights)},
          {"seed", setting.seed},
          {"layout", layout},
          {"flagged", clean.flagged}};
}

OrderedJson alarms_json(const CleanScore& score) {
  return {{"false_alarm_runs", score.alarms},
          {"false_alarm_references", score.alarming_references}};
}

std::optional<double> worst_of_key(const Key& key,
                                   const std::string& detector,
                                   const Plan& plan,
                                   const Outcomes& outcomes) {
  return worst(plan, outcomes, detector, [&](const Series& series) {
    return series.precision == key.precision &&
           std::find(key.mutants.begin(), key.mutants.end(), series.mutant) != key.mutants.end();
  });
}

bool is_met(const Key& key, const Plan& plan, const Outcomes& outcomes) {
  const auto figure = figure_of(key, plan, outcomes);
  return figure && *figure <= key.goal;
}

}  // namespace

std::optional<double> worst(const Plan& plan,
                            const Outcomes& outcomes,
                            const std::string& detector,
                            const std::function<bool(const Series&)>& wanted) {
  std::optional<double> result;
  for (std::size_t i = 0; i < plan.series.size(); ++i) {
    if (!wanted(plan.series[i])) {
      continue;
    }
    const auto& smallest = outcomes.series[i].smallest;
    const auto found = smallest.find(detector);
    if (found == smallest.end() || !found->second) {
      return std::nullopt;
    }
    result = std::max(result.value_or(0.0), *found->second);
  }
  return result;
}

std::optional<double> figure_of(const Key& key, const Plan& plan, const Outcomes& outcomes) {
  return worst_of_key(key, key.detector, plan, outcomes);
}

std::optional<double> figure_at_operator(const Key& key,
                                         const Plan& plan,
                                         const Outcomes& outcomes) {
  return worst_of_key(key, at_operator(key.detector), plan, outcomes);
}

CleanScore clean_score(const Plan& plan,
                       const Outcomes& outcomes,
                       const std::string& detector,
                       const std::string& precision) {
  CleanScore score;
  std::set<std::size_t> references;
  std::set<std::size_t> alarming;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const Observation& clean = outcomes.cleans[i];
    const Setting& setting = plan.settings[plan.cleans[i].setting];
    if (!clean.problem.empty() || (!precision.empty() && setting.precision != precision)) {
      continue;
    }
    ++score.runs;
    references.insert(plan.cleans[i].setting);
    if (clean.flagged.contains(detector)) {
      ++score.alarms;
      alarming.insert(plan.cleans[i].setting);
    }
  }
  score.references = static_cast<int>(references.size());
  score.alarming_references = static_cast<int>(alarming.size());
  return score;
}

std::vector<std::string> detectors_of(const Outcomes& outcomes) {
  std::set<std::string> present;
  for (const Observation& clean : outcomes.cleans) {
    present.insert(clean.present.begin(), clean.present.end());
  }
  std::vector<std::string> result;
  for (const std::string& detector : present) {
    if (detector == "T0" || detector == "T1") {
      result.push_back(detector);
    }
  }
  if (!present.empty()) {
    result.insert(result.end(), {kAnyTier, at_operator(kAnyTier), kWithoutForced});
  }
  for (const testing::RuleText& rule : testing::kRuleTexts) {
    if (present.contains(std::string(rule.name))) {
      result.emplace_back(rule.name);
    }
  }
  return result;
}

std::vector<std::string> problems_of(const Plan& plan, const Outcomes& outcomes) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    if (!outcomes.cleans[i].problem.empty()) {
      lines.push_back("clean run, " + describe(plan.settings[plan.cleans[i].setting]) + ", " +
                      plan.cleans[i].layout + ": " + outcomes.cleans[i].problem);
    }
  }
  for (std::size_t i = 0; i < plan.series.size(); ++i) {
    for (const std::string& problem : outcomes.series[i].problems) {
      lines.push_back(describe(plan.series[i]) + ": " + problem);
    }
  }
  return lines;
}

bool goals_are_met(const Plan& plan, const Outcomes& outcomes) {
  const CleanScore clean = clean_score(plan, outcomes, kAnyTier);
  return problems_of(plan, outcomes).empty() && 100 * clean.alarms <= clean.runs &&
         std::all_of(plan.keys.begin(), plan.keys.end(), [&](const Key& key) {
           return is_met(key, plan, outcomes);
         });
}

OrderedJson json_of(const Plan& plan, const Outcomes& outcomes, const std::string& command) {
  OrderedJson json = OrderedJson::object();
  for (const Key& key : plan.keys) {
    json[key.name] = number_or_null(figure_of(key, plan, outcomes));
  }
  for (const Key& key : plan.keys) {
    json["at_operator"][key.name] = number_or_null(figure_at_operator(key, plan, outcomes));
  }
  const CleanScore clean = clean_score(plan, outcomes, kAnyTier);
  json["false_alarm_runs"] = clean.alarms;
  json["clean_runs"] = clean.runs;
  json["false_alarm_references"] = clean.alarming_references;
  json["clean_references"] = clean.references;
  json["without_forced"] = alarms_json(clean_score(plan, outcomes, kWithoutForced));
  json["command"] = command;
  json["layout"] = plan.layout;
  json["config"] = plan.config;
  json["batches"] = plan.seeds.size();
  json["runs"] = outcomes.runs;
  json["detectors"] = detectors_of(outcomes);
  json["problems"] = problems_of(plan, outcomes);
  json["clean"] = OrderedJson::array();
  for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
    const CleanRun& run = plan.cleans[i];
    json["clean"].push_back(clean_json(plan.settings[run.setting], run.layout, outcomes.cleans[i]));
  }
  json["series"] = OrderedJson::array();
  for (std::size_t i = 0; i < plan.series.size(); ++i) {
    json["series"].push_back(series_json(plan.series[i], outcomes.series[i]));
  }
  return json;
}

}  // namespace ttrace::roc
