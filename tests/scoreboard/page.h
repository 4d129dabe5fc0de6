// The scoreboard as it is stored: for programs and for people.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/outcome.h"
#include "scoreboard/plan.h"

#include <nlohmann/json.hpp>

#include <string>

namespace ttrace::scoreboard {

// {"bugs": [...], "clean": [...], "scores": {...}, "command": ..., ...}
[[nodiscard]] nlohmann::ordered_json json_of(const Catalogue& catalogue,
                                             const Plan& plan,
                                             const Outcomes& outcomes,
                                             const std::string& command);

// Markdown: figures first, then the bugs by chapter, misses, rules of today, clean runs.
[[nodiscard]] std::string page_of(const Catalogue& catalogue,
                                  const Plan& plan,
                                  const Outcomes& outcomes,
                                  const std::string& command);

// A few lines for the terminal.
[[nodiscard]] std::string summary_of(const Catalogue& catalogue,
                                     const Plan& plan,
                                     const Outcomes& outcomes);

}  // namespace ttrace::scoreboard
