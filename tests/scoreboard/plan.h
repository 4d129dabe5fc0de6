// The runs to make: references, clean candidates and bugs.
//
// A reference runs once for all layouts that train the same. A clean candidate runs once for all
// bugs in its layout and shows whether they are triggered. Thread-safety: values and free functions
// without shared state.
#pragma once

#include "scoreboard/catalogue.h"

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace::scoreboard {

// Everything that a reference depends on.
struct Setting {
  testing::ConfigChanges config;
  std::string precision;
  int steps = 1;
  int seed = 1;

  auto operator<=>(const Setting&) const = default;
};

struct CleanCase {
  std::size_t setting = 0;
  std::string layout;

  auto operator<=>(const CleanCase&) const = default;
};

struct BugCase {
  std::size_t clean = 0;
  std::size_t bug = 0;  // in the catalogue
};

struct Plan {
  std::vector<Setting> settings;
  std::vector<CleanCase> cleans;  // those of one setting are neighbours
  std::vector<BugCase> bugs;
  std::vector<std::size_t> not_built;  // pending bugs of the catalogue that were chosen
};

struct Choice {
  std::optional<std::string> filter = {};                // regular expression found in a bug's name
  std::optional<std::set<std::string>> names = {};       // and it is one of these
  std::optional<std::set<std::string>> precisions = {};  // only these, where a bug lists them
  int seeds = 1;  // of clean runs; bugs are run with the first
};

// Throws UsageError for a filter that is not a regular expression or leaves nothing, and for names
// that the catalogue does not have.
[[nodiscard]] Plan make_plan(const Catalogue& catalogue, const Choice& choice);

// "--tp 2 --sp; model.experts: 4", "one rank".
[[nodiscard]] std::string describe(const std::string& layout, const Setting& setting);

}  // namespace ttrace::scoreboard
