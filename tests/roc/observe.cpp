#include "roc/observe.h"

#include "roc/plan.h"

namespace ttrace::roc {
namespace {

bool is_finding(const nlohmann::json& tensor) {
  static const std::set<std::string> harmless = {"within", "incomplete", "behind_flip"};
  return !tensor.at("allowed").get<bool>() &&
         !harmless.contains(tensor.at("status").get<std::string>());
}

}  // namespace

void add_tiers(const nlohmann::json& report, Observation& observation) {
  observation.present.insert(kAnyTier);
  for (const auto& tensor : report.at("tensors")) {
    const std::string tier = tensor.at("tier");
    observation.present.insert(tier);
    if (is_finding(tensor)) {
      observation.flagged.insert(tier);
      observation.flagged.insert(kAnyTier);
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
