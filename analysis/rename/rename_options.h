// The caller's choices for a renamed trace.
//
// Thread-safety: a value.
#pragma once

#include "analysis/findings/names.h"

#include <cstddef>
#include <functional>
#include <string>

namespace ttrace {

struct RenameOptions {
  Names to = Names::kCandidate;  // the trace is of the other side
  // What Manifest::forced_routing of the result is; empty: as it was.
  std::string forced_routing = {};
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

}  // namespace ttrace
