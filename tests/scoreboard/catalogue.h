// The declared bugs: examples/megatron_mini/bugs.yaml, which explains the keys.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "support/derived_config.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace::scoreboard {

// The new declaration of a bug whose declaration was changed after its first run.
struct Redeclaration {
  std::string date;
  std::string reason;
  std::string expected;  // empty if it stayed
  std::string hint;
};

struct CataloguedBug {
  std::string name;
  std::string chapter;            // "B.4"
  std::vector<std::string> rows;  // catalogue numbers: "B26"; "T04" of the TTrace paper
  std::string source;
  std::string layout;  // "--tp 2 --sp"
  testing::ConfigChanges config;
  int steps = 1;
  std::vector<std::string> precisions;
  std::string expected;  // regular expression for the whole id of the first divergence
  std::string hint;      // regular expression for the whole signature
  // Signatures that name the mechanism, the most exact one first; empty: none does.
  std::vector<std::string> cause = {};
  std::optional<Redeclaration> redeclared = {};
  // The names that a probable cause should contain; empty if the mechanism has none.
  std::set<std::string> axis = {};  // names of one group of ranks
  std::optional<double> factor = {};
  std::set<int> ranks = {};
  std::string difficulty = "obvious";  // "medium", "subtle"
  bool pending = false;                // declared, but not in the program
  // By precision: the measured reason why the first divergence is not the declared one.
  std::map<std::string, std::string> unlocated = {};
};

// How well a row of the TTrace paper is known.
struct PaperRow {
  std::string known;  // "confirmed", "high", "medium", "low"
  std::string why;
};

struct Catalogue {
  std::map<std::string, std::string> chapters;  // title by chapter
  std::map<std::string, PaperRow> paper = {};   // by row, "T01"
  std::vector<CataloguedBug> bugs;
};

// Throws UsageError naming what is missing or malformed.
[[nodiscard]] Catalogue read_catalogue(const std::string& file);

}  // namespace ttrace::scoreboard
