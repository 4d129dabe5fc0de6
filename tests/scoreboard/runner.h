// Runs a plan: references with their noise, clean candidates, bugs; judges each and keeps no trace.
//
// Thread-safety: one call at a time.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/outcome.h"
#include "scoreboard/plan.h"

#include <functional>
#include <string>

namespace ttrace::scoreboard {

struct RunOptions {
  std::string bin;        // folder of ttrace, ttrace_reference and megatron_mini
  std::string run_ranks;  // script that starts ranks
  std::string base;       // configuration that settings change
  std::string work;       // existing folder for configurations and traces
  int jobs = 1;           // checks at the same time
  int timeout_s = 120;    // that a pass may take
  bool keep = false;      // traces and logs stay
  // Called before each check, one call at a time.
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
};

[[nodiscard]] Outcomes run_plan(const Catalogue& catalogue,
                                const Plan& plan,
                                const RunOptions& options);

}  // namespace ttrace::scoreboard
