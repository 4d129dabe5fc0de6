#include "scoreboard/page.h"
#include "scoreboard/text.h"

#include <cmath>

namespace ttrace::scoreboard {
namespace {

using Json = nlohmann::ordered_json;
using testing::kRules;
using testing::kRuleTexts;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

template <class Value>
Json value_or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json rules_json(const testing::RuleHits& hits) {
  Json json = Json::object();
  for (std::size_t rule = 0; rule < kRules; ++rule) {
    json[std::string(kRuleTexts[rule].name)] = text_or_null(hits[rule]);
  }
  return json;
}

Json redeclared_json(const std::optional<Redeclaration>& redeclared) {
  if (!redeclared) {
    return nullptr;
  }
  return {{"date", redeclared->date},
          {"reason", redeclared->reason},
          {"expected", text_or_null(redeclared->expected)},
          {"hint", text_or_null(redeclared->hint)}};
}

Json terms_json(const std::set<std::string>& axes,
                const std::optional<double>& factor,
                const std::set<int>& ranks) {
  return {{"axes", axes}, {"factor", value_or_null(factor)}, {"ranks", ranks}};
}

Json declaration_json(const CataloguedBug& bug) {
  return {{"expected", bug.expected},
          {"hint", bug.hint},
          {"redeclared", redeclared_json(bug.redeclared)},
          {"cause", bug.cause},
          {"terms", terms_json(bug.axis, bug.factor, bug.ranks)}};
}

Json without_forced_json(const WithoutForced& verdict) {
  return {{"found", verdict.found},
          {"located", verdict.located},
          {"first_divergence", text_or_null(verdict.first_id)}};
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
  const double ratio = outcome.error_over_bound;
  Json json = {{"bug", bug.name},
               {"chapter", bug.chapter},
               {"source", bug.source},
               {"difficulty", bug.difficulty},
               {"layout", describe(clean.layout, setting)},
               {"precision", setting.precision}};
  json.update(declaration_json(bug));
  json.update(Json{{"triggered", outcome.triggered},
                   {"found", outcome.found},
                   {"located", outcome.located},
                   {"hint_right", outcome.hint_right},
                   {"cause_exact", outcome.cause_exact},
                   {"cause_right", outcome.cause_right},
                   {"terms_right", value_or_null(outcome.terms_right)},
                   {"without_forced", without_forced_json(outcome.without_forced)},
                   {"seconds", std::round(outcome.seconds * 100.0) / 100.0},
                   {"first_divergence", text_or_null(outcome.first_id)},
                   {"error_over_bound", std::isfinite(ratio) ? Json(ratio) : Json("Inf")},
                   {"signature", outcome.signature}});
  json["probable_cause"] = text_or_null(outcome.probable_cause);
  const auto& named = outcome.named;
  json["named"] = terms_json(named.axes, named.factor, named.ranks);
  json["problem"] = text_or_null(outcome.problem);
  json["reason"] = outcome.located ? Json() : Json(reason_for(bug, setting.precision));
  json["first_failing_by_rule"] = rules_json(outcome.rules);
  return json;
}

Json rule_json(const Catalogue& catalogue,
               const Plan& plan,
               const Outcomes& outcomes,
               std::size_t rule,
               const std::string& precision) {
  const RuleScore score = rule_score_of(catalogue, plan, outcomes, rule, precision);
  return {{"rule", kRuleTexts[rule].name},
          {"precision", precision},
          {"triggered", score_of(catalogue, plan, outcomes, {.precision = precision}).triggered},
          {"found", score.found},
          {"told_apart", score.told_apart},
          {"located", score.located},
          {"clean_runs", clean_score_of(plan, outcomes, precision).runs},
          {"false_alarms", score.false_alarms}};
}

Json score_json(const Score& score) {
  return {{"runs", score.runs},
          {"failed", score.failed},
          {"triggered", score.triggered},
          {"found", score.found},
          {"located", score.located},
          {"found_without_forced", score.found_without_forced},
          {"located_without_forced", score.located_without_forced},
          {"hints_right", score.hints_right},
          {"hints_of_nothing", score.hints_of_nothing},
          {"causes_exact", score.causes_exact},
          {"causes_right", score.causes_right},
          {"with_terms", score.with_terms},
          {"terms_right", score.terms_right}};
}

// Figures by precision and by difficulty; "all" has those of all bugs.
Json scores_json(const Catalogue& catalogue, const Plan& plan, const Outcomes& outcomes) {
  Json json = {{"all", score_json(score_of(catalogue, plan, outcomes))}};
  for (const std::string& precision : precisions_of(plan)) {
    json[precision] = score_json(score_of(catalogue, plan, outcomes, {.precision = precision}));
  }
  for (const std::string& difficulty : difficulties()) {
    json[difficulty] = score_json(score_of(catalogue, plan, outcomes, {.difficulty = difficulty}));
  }
  return json;
}

Json alarms_json(const AlarmScore& score) {
  return {{"runs", score.runs}, {"references", score.references}};
}

Json clean_score_json(const CleanScore& score) {
  return {{"runs", score.runs},
          {"failed", score.failed},
          {"references", score.references},
          {"alarms", alarms_json(score.alarms)},
          {"alarms_without_forced", alarms_json(score.without_forced)},
          {"diagnoses", score.diagnoses}};
}

Json clean_json(const std::pair<std::string, std::string>& key, const CleanRow& row) {
  return {{"layout", key.first},
          {"precision", key.second},
          {"runs", row.runs},
          {"alarms", row.alarms},
          {"alarms_without_forced", row.alarms_without_forced},
          {"diagnoses", row.diagnoses},
          {"failed", row.failed}};
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
  for (const auto& [key, row] : clean_matrix(plan, outcomes)) {
    json["clean"].push_back(clean_json(key, row));
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
  json["scores"] = scores_json(catalogue, plan, outcomes);
  json["clean_score"] = clean_score_json(clean_score_of(plan, outcomes));
  json["seconds"] = std::round(outcomes.seconds);
  json["command"] = command;
  return json;
}

}  // namespace ttrace::scoreboard
