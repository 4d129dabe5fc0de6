#include "roc/observe.h"

#include <cmath>
#include <limits>
#include <regex>
#include <set>

namespace ttrace::roc {
namespace {

using Json = nlohmann::json;

bool is_at(const std::string& id, const std::string& place) {
  return place.empty() || std::regex_match(id, std::regex(place));
}

// Reports write numbers that are not finite as text.
double number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
}

bool has(const Json& object, const char* key) {
  return object.contains(key) && !object.at(key).is_null();
}

bool is_finding(const Json& tensor) {
  static const std::set<std::string> findings = {
      "diverged", "missing_in_candidate", "missing_in_reference"};
  return findings.contains(tensor.at("status").get<std::string>()) &&
         !tensor.at("allowed").get<bool>();
}

// T1 by its own figures: a tensor that is beyond its bound as well has T2 for its tier.
bool operators_are_wrong(const Json& tensor) {
  if (!has(tensor, "operator")) {
    return false;
  }
  const Json& judged = tensor.at("operator");
  const auto beyond = [&](const char* part, const char* value) {
    return has(judged, part) &&
           std::abs(number(judged.at(part).at(value))) > number(judged.at(part).at("bound"));
  };
  return number(judged.at("r")) > number(judged.at("limit")) || beyond("slice", "error") ||
         beyond("factor_in_noise", "deviation");
}

bool found_by(const Json& tensor, const std::string& tier) {
  return (is_finding(tensor) && tensor.at("tier") == tier) ||
         (tier == "T1" && operators_are_wrong(tensor));
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
    if (has(tensor, "operator")) {
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
