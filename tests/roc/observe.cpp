#include "roc/observe.h"

#include "roc/plan.h"

#include <cmath>
#include <limits>
#include <set>

namespace ttrace::roc {
namespace {

using Json = nlohmann::json;

// Reports write numbers that are not finite as text.
double number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
}

bool is_finding(const Json& tensor) {
  static const std::set<std::string> harmless = {
      "within", "incomplete", "behind_flip", "inherited"};
  return !tensor.at("allowed").get<bool>() &&
         !harmless.contains(tensor.at("status").get<std::string>());
}

bool has(const Json& object, const char* key) {
  return object.contains(key) && !object.at(key).is_null();
}

bool part_is_beyond(const Json& judged) {
  return (has(judged, "slice") &&
          number(judged.at("slice").at("error")) > number(judged.at("slice").at("bound"))) ||
         (has(judged, "factor_in_noise") &&
          std::abs(number(judged.at("factor_in_noise").at("deviation"))) >
              number(judged.at("factor_in_noise").at("bound")));
}

// A tier by its own figures, whatever another one says of the same tensor.
void add_operators(const Json& tensor, Observation& observation) {
  if (!has(tensor, "operator")) {
    return;
  }
  const Json& judged = tensor.at("operator");
  observation.present.insert("T1");
  if (number(judged.at("r")) > number(judged.at("limit")) || part_is_beyond(judged)) {
    observation.flagged.insert("T1");
  }
}

void add_noise(const Json& tensor, Observation& observation) {
  if (!has(tensor, "bound") || number(tensor.at("bound")) == 0.0) {
    return;
  }
  observation.present.insert("T2");
  if (number(tensor.at("error")) > number(tensor.at("bound")) || part_is_beyond(tensor)) {
    observation.flagged.insert("T2");
  }
}

}  // namespace

void add_tiers(const Json& report, Observation& observation) {
  observation.present.insert(kAnyTier);
  for (const Json& tensor : report.at("tensors")) {
    add_operators(tensor, observation);
    add_noise(tensor, observation);
    if (is_finding(tensor)) {
      observation.flagged.insert(kAnyTier);
      if (tensor.at("tier") == "T0") {
        observation.flagged.insert("T0");
      }
    }
    if (tensor.at("tier") == "T0") {
      observation.present.insert("T0");
    }
  }
}

void add_rules(const testing::RuleHits& hits, Observation& observation) {
  for (std::size_t rule = 0; rule < testing::kRules; ++rule) {
    const std::string name(testing::kRuleTexts[rule].name);
    observation.present.insert(name);
    if (!hits[rule].empty()) {
      observation.flagged.insert(name);
    }
  }
}

}  // namespace ttrace::roc
