#include "analysis/causes/diagnose.h"

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/signatures.h"

#include <array>

namespace ttrace {

std::optional<Diagnosis> diagnose(const Evidence& evidence) {
  constexpr std::array kHypotheses = {
      find_local_norm,         find_stale,          find_fp8_scale,        find_unsummed_replicas,
      find_other_variant,      find_factor_or_bias, find_rank_factors,     find_gradient_addends,
      find_linear_addends,     find_leftover,       find_auxiliary_loss,   find_weight_gradient,
      find_wrong_order,        find_routing_flip,   find_misrouted_rows,   find_wrong_layer,
      find_row_order,          find_wrong_view,     find_duplicated_block, find_precision,
      find_untouched_block,    find_boundary,       find_constant_bias,    find_row_factors,
      find_loss_normalisation, find_optimizer,      find_positions,        find_attention,
      find_localised,          find_non_finite,     find_recompute,        find_source,
      find_diverged_replicas};
  for (const auto hypothesis : kHypotheses) {
    if (auto diagnosis = hypothesis(evidence)) {
      return diagnosis;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
