#include "analysis/diagnosis/diagnosis.h"

#include "analysis/diagnosis/evidence.h"
#include "analysis/diagnosis/signatures.h"

#include <array>

namespace ttrace {

std::string_view name_of(Signature signature) {
  constexpr std::array<std::string_view, 11> kNames = {"stale",
                                                       "local_norm",
                                                       "missing_reduction",
                                                       "repeated_reduction",
                                                       "missing_microbatch",
                                                       "wrong_addends",
                                                       "repeated_bias",
                                                       "wrong_factor",
                                                       "wrong_order",
                                                       "localised",
                                                       "replicas_diverge"};
  return kNames.at(static_cast<std::size_t>(signature));
}

std::optional<Diagnosis> diagnose(const Evidence& evidence) {
  constexpr std::array kHypotheses = {find_local_norm,
                                      find_stale,
                                      find_unsummed_replicas,
                                      find_factor_or_bias,
                                      find_gradient_addends,
                                      find_linear_addends,
                                      find_wrong_order,
                                      find_localised,
                                      find_diverged_replicas};
  for (const auto hypothesis : kHypotheses) {
    if (auto diagnosis = hypothesis(evidence)) {
      return diagnosis;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
