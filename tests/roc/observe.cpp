#include "roc/observe.h"

#include "trace/base/pattern.h"

#include <algorithm>

namespace ttrace::roc {
namespace {

using Json = nlohmann::json;

bool is_at(const std::string& id, const std::string& place) {
  return place.empty() || Pattern("the mutant's place", place).matches(id);
}

bool is_finding(const Json& tensor) {
  return tensor.at("finding").get<bool>();
}

// Whether a check of `tier` was made of the tensor; with `failed`, one that does not hold.
bool has_check(const Json& tensor, const std::string& tier, bool failed) {
  const Json& checks = tensor.at("checks");
  return std::any_of(checks.begin(), checks.end(), [&](const Json& check) {
    return check.at("tier") == tier && !(failed && check.at("holds").get<bool>());
  });
}

// A failed check of T1 counts whatever excuses its tensor: the operators are wrong there.
bool found_by(const Json& tensor, const std::string& tier) {
  return has_check(tensor, tier, /*failed=*/true) && (tier == "T1" || is_finding(tensor));
}

void add_presence(const std::string& detector, Observation& observation) {
  observation.present.insert({detector, at_operator(detector)});
}

// Notes that `detector` found something at `tensor`.
void flag(const std::string& detector,
          const Json& tensor,
          const Places& places,
          Observation& observation) {
  const std::string id = tensor.at("id").get<std::string>();
  if (is_at(id, places.own)) {
    observation.flagged.insert(detector);
  }
  if (is_at(id, places.operator_)) {
    observation.flagged.insert(at_operator(detector));
  }
}

}  // namespace

void add_check(const Json& report, const Places& places, Observation& observation) {
  add_presence(kAnyTier, observation);
  if (const Json& first = report.at("first_divergence"); !first.is_null()) {
    flag(kAnyTier, first, places, observation);
  }
  add_presence("T0", observation);
  for (const Json& tensor : report.at("tensors")) {
    if (has_check(tensor, "T1", /*failed=*/false)) {
      add_presence("T1", observation);
    }
    for (const char* tier : {"T0", "T1"}) {
      if (found_by(tensor, tier)) {
        flag(tier, tensor, places, observation);
      }
    }
  }
}

void add_without_forced(const Json& report, const Places& places, Observation& observation) {
  add_presence(kWithoutForced, observation);
  for (const Json& tensor : report.at("tensors")) {
    if (is_finding(tensor)) {
      flag(kWithoutForced, tensor, places, observation);
    }
  }
}

void add_rules(const testing::RuleHits& hits, const Places& places, Observation& observation) {
  for (std::size_t rule = 0; rule < testing::kRules; ++rule) {
    const std::string name(testing::kRuleTexts[rule].name);
    observation.present.insert(name);
    if (!hits[rule].empty() && is_at(hits[rule], places.own)) {
      observation.flagged.insert(name);
    }
  }
}

}  // namespace ttrace::roc
