// Findings that have a cause of their own, and their diagnoses.
//
// The first divergence has one. So has every tensor that is not what its operators make of the
// candidate's own values (T1): what came before cannot be why. Two bugs in one run are two roots.
// Behind copies that differ no further cause is named, because ranks continue with different values
// there and the operators are checked on one of them. A tensor counts once, whatever the steps and
// micro-batches in which it is wrong.
//
// Thread-safety: free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/checks/operator_check.h"
#include "analysis/findings/report.h"
#include "trace/file/trace_reader.h"

#include <span>

namespace ttrace {

// Fills in what the report says of the first divergence and of the further roots, at most 7 of
// them. `forced`: null without forced passes; then there are no further ones. `heads`: see
// JudgeOptions.
void find_roots(std::span<const Match> matches,
                const ForcedTraces* forced,
                const Trace& candidate,
                const Heads& heads,
                Report& report);

}  // namespace ttrace
