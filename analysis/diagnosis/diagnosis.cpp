#include "analysis/diagnosis/diagnosis.h"

#include "analysis/diagnosis/evidence.h"
#include "analysis/diagnosis/signatures.h"

#include <array>

namespace ttrace {

std::string_view name_of(Signature signature) {
  constexpr auto kNames = std::to_array<std::string_view>({"stale",
                                                           "local_norm",
                                                           "missing_reduction",
                                                           "repeated_reduction",
                                                           "missing_microbatch",
                                                           "wrong_addends",
                                                           "repeated_bias",
                                                           "wrong_factor",
                                                           "wrong_order",
                                                           "localised",
                                                           "replicas_diverge",
                                                           "shifted",
                                                           "wrong_view",
                                                           "zero_block",
                                                           "duplicated_block",
                                                           "boundary",
                                                           "constant_bias",
                                                           "extra_rounding",
                                                           "higher_precision"});
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
                                      find_row_order,
                                      find_wrong_view,
                                      find_duplicated_block,
                                      find_precision,
                                      find_untouched_block,
                                      find_boundary,
                                      find_constant_bias,
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
