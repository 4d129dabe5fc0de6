// Choices of experts: which differences round-off explains, and what may follow from them.
//
// Two experts whose scores nearly tie change places under round-off: a legal flip. With m_r the
// reference's margin of a token (score of its last choice less that of the next expert) and m_c the
// candidate's, the scores of the experts that changed places must have moved against each other by
// at least m_r + m_c. A flip is legal where that is at most
//
//   bound = 2 max(D, 3.2 s)   D: largest change of a margin in any noise pass,
//                             s: root mean square of these changes over tokens and passes
//
// 2 is the limit of an activation (limits.h). Without noise passes: default factor of an activation
// x rounding error x the largest margin.
//
// The order among a token's choices does not count: two whose scores nearly tie change places under
// round-off. Scores of the choices, and their gradients, are in that order, so the candidate's are
// compared in the order of the reference's choices.
//
// What follows a flip is another computation: without a reference that followed the candidate's
// choices it cannot be judged by round-off.
//
// Sources: flips were measured to happen at margins of at most 3.2 standard deviations of the
// margins' noise, and to be as many as the density of margins there predicts.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/bounds.h"
#include "analysis/findings/verdict.h"
#include "trace/merge/merge.h"
#include "trace/merge/routing.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

// One per token, row-major; empty if they were not recorded.
struct Margins {
  std::vector<double> reference;
  std::vector<double> candidate;
};

// Whole choices [..., k] of one shape. Where margins are missing every token that goes to other
// experts fails the check.
[[nodiscard]] Check routing_check(const MergeResult& reference,
                                  const MergeResult& candidate,
                                  const Margins& margins,
                                  const Bound& bound);

// A tensor whose tokens' values stand in another order than before.
struct Reordered {
  MergeResult tensor;
  std::int64_t tokens = 0;  // whose order changed
};
// `tensor`, which has a value per choice, with the values of each token in the order in which the
// reference chose the same experts. Nothing if its last dimension is not that of the choices
// [..., k], or if no token has the same experts in another order.
[[nodiscard]] std::optional<Reordered> in_order_of_reference(const Match& choices,
                                                             const MergeResult& tensor);

// Whether some token of `candidate` goes to another set of experts than in `reference`. False also
// if the two do not have the same routers, micro-batches and shapes, because nobody could reuse
// such choices.
[[nodiscard]] bool has_flips(const Routing& reference, const Routing& candidate);

}  // namespace ttrace
