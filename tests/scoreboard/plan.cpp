#include "scoreboard/plan.h"

#include "trace/base/pattern.h"

#include <ttrace/error.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ttrace::scoreboard {
namespace {

void check_names(const Catalogue& catalogue, const Choice& choice) {
  for (const std::string& name : choice.names.value_or(std::set<std::string>{})) {
    TTRACE_CHECK(std::any_of(catalogue.bugs.begin(),
                             catalogue.bugs.end(),
                             [&](const auto& bug) { return bug.name == name; }),
                 UsageError,
                 "the list of bugs has no `",
                 name,
                 "`; correct the scoreboard's subset");
  }
}

std::vector<std::string> precisions_of(const CataloguedBug& bug, const Choice& choice) {
  std::vector<std::string> result;
  for (const std::string& precision : bug.precisions) {
    if (!choice.precisions || choice.precisions->contains(precision)) {
      result.push_back(precision);
    }
  }
  return result;
}

// A run with the first seed, and the bugs in it.
using Runs = std::map<std::pair<Setting, std::string>, std::vector<std::size_t>>;

Runs runs_of(const Catalogue& catalogue, const Choice& choice, Plan& plan) {
  const Pattern filter("--filter", choice.filter.value_or(""));
  Runs runs;
  for (std::size_t i = 0; i < catalogue.bugs.size(); ++i) {
    const CataloguedBug& bug = catalogue.bugs[i];
    const auto precisions = precisions_of(bug, choice);
    if (precisions.empty() || !filter.found_in(bug.name) ||
        (choice.names && !choice.names->contains(bug.name))) {
      continue;
    }
    if (bug.pending) {
      plan.not_built.push_back(i);
      continue;
    }
    for (const std::string& precision : precisions) {
      const Setting setting{
          .config = bug.config, .precision = precision, .steps = bug.steps, .seed = 1};
      runs[{setting, bug.layout}].push_back(i);
    }
  }
  return runs;
}

}  // namespace

Plan make_plan(const Catalogue& catalogue, const Choice& choice) {
  check_names(catalogue, choice);
  Plan plan;
  const Runs runs = runs_of(catalogue, choice, plan);
  TTRACE_CHECK(!runs.empty() || !plan.not_built.empty(),
               UsageError,
               "--filter '",
               choice.filter.value_or(""),
               "' and --precision select no bug; bugs.yaml lists names and precisions");
  const auto index_of = [&plan](const Setting& setting) {
    if (plan.settings.empty() || plan.settings.back() != setting) {
      plan.settings.push_back(setting);
    }
    return plan.settings.size() - 1;
  };
  // The map is sorted by setting, so equal ones are neighbours.
  for (const auto& [run, bugs] : runs) {
    plan.cleans.push_back({index_of(run.first), run.second});
    for (const std::size_t bug : bugs) {
      plan.bugs.push_back({plan.cleans.size() - 1, bug});
    }
  }
  for (int seed = 2; seed <= choice.seeds; ++seed) {
    for (const auto& [run, bugs] : runs) {
      Setting setting = run.first;
      setting.seed = seed;
      plan.cleans.push_back({index_of(setting), run.second});
    }
  }
  return plan;
}

std::string describe(const std::string& layout, const Setting& setting) {
  std::string text = layout.empty() ? "one rank" : layout;
  for (const auto& [key, value] : setting.config) {
    text += "; ";
    text += key;
    text += ": ";
    text += value;
  }
  return setting.steps == 1 ? text : text + "; " + std::to_string(setting.steps) + " steps";
}

}  // namespace ttrace::scoreboard
