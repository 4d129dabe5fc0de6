#include "support/named_terms.h"

#include <cmath>
#include <vector>

namespace ttrace::testing {
namespace {

// The one that is not 1, if those agree.
std::optional<double> common_factor(const std::vector<double>& factors) {
  constexpr double kSame = 1e-3;  // relative
  std::optional<double> common;
  for (const double factor : factors) {
    if (std::abs(factor - 1.0) <= kSame) {
      continue;
    }
    if (common && std::abs(factor - *common) > kSame * std::abs(*common)) {
      return std::nullopt;
    }
    common = factor;
  }
  return common;
}

}  // namespace

NamedTerms named_terms(const nlohmann::json& report) {
  const auto diagnoses = report.find("diagnoses");
  if (diagnoses == report.end() || diagnoses->empty()) {
    return {};
  }
  const nlohmann::json& named = diagnoses->front().at("named");
  if (named.is_null()) {
    return {};
  }
  return {.axes = named.at("axes"),
          .factor = common_factor(named.at("factors")),
          .ranks = named.at("ranks")};
}

}  // namespace ttrace::testing
