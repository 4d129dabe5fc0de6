// What a user wants to have been seen: otherwise nothing passes.
//
// Thread-safety: plain values, and free functions without shared state.
#pragma once

#include "analysis/findings/report.h"
#include "trace/base/not_seen.h"

#include <ttrace/kind.h>

#include <set>

namespace ttrace {

struct Required {
  std::set<NotSeenKind> kinds = {};  // nothing of these may have been left out
  std::set<Kind> tensors = {};       // at least one of each must have been judged
};

// Adds to report.unmet a sentence for everything that is missing. Requires: report.not_seen is
// complete.
void hold_against(const Required& required, Report& report);

}  // namespace ttrace
