// The declared bugs: examples/megatron_mini/bugs.yaml, which explains the keys.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "support/derived_config.h"

#include <map>
#include <string>
#include <vector>

namespace ttrace::scoreboard {

struct CataloguedBug {
  std::string name;
  std::string chapter;            // "B.4"
  std::vector<std::string> rows;  // catalogue numbers: "B26"; "T04" of the TTrace paper
  std::string source;
  std::string layout;  // "--tp 2 --sp"
  testing::ConfigChanges config;
  int steps = 1;
  std::vector<std::string> precisions;
  std::string expected;  // regular expression found in the id of the first divergence
  std::string hint;      // regular expression for the whole signature
  std::vector<std::string> cause = {};  // signatures that name the mechanism; empty: none does
  bool pending = false;                 // declared, but not in the program
  // By precision: the measured reason why the first divergence is not the declared one.
  std::map<std::string, std::string> unlocated = {};
};

struct Catalogue {
  std::map<std::string, std::string> chapters;  // title by chapter
  std::vector<CataloguedBug> bugs;
};

// Throws UsageError naming what is missing or malformed.
[[nodiscard]] Catalogue read_catalogue(const std::string& file);

}  // namespace ttrace::scoreboard
