// Random numbers: which of them the reference can follow, which contradict each other, and what may
// not be judged.
//
// Two programs draw their random numbers in different orders, so that the reference follows the
// candidate's draws. What it cannot follow is another computation, and what depends on it is not
// judged: a draw that nobody could read, that has another shape, or that lies nobody knows where.
//
// Ranks that hold different parts of one tensor must draw different numbers for them. A draw of n
// elements whose values have the frequencies f_i is the same twice by chance with the probability
// (sum f_i^2)^n; ranks whose draws are equal although that is below e^-20 drew the same. Ranks that
// have samples of their own may do so.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/checks/excuses.h"
#include "analysis/findings/not_seen.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/draws.h"

#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Whether the reference must follow the candidate's draws: one of those that it can follow differs.
// It follows data only where data_of_its_own() finds some.
[[nodiscard]] bool has_other_draws(const Draws& reference, const Draws& candidate);

// Adds a failed check to every draw that is the same for different parts of one tensor. Where only
// samples differ, a note says so.
void check_draws(const Trace& candidate,
                 std::span<const Match> matches,
                 std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 std::vector<std::string>& notes);

// Sides whose program drew random numbers where nobody saw it.
struct HiddenDraws {
  bool reference = false;
  bool candidate = false;
};
// What the programs state of themselves.
[[nodiscard]] HiddenDraws hidden_draws(std::span<const UnseenPart> parts);

// Draws that could not be followed, and errors behind them: those of the draw's micro-batch, and
// from the optimizer on all. A draw that one side alone has is a finding, unless the other side has
// one that this one does not have, or hides some. Requires: tensors in the reference's order.
[[nodiscard]] Excuses behind_draws(std::span<const Match> matches,
                                   std::span<const TensorVerdict> tensors,
                                   const HiddenDraws& hidden);

}  // namespace ttrace
