// The figures that the benchmarks measure: one key each. docs/benchmarks.md and --help explain
// them.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace ttrace::bench {

struct Key {
  const char* name;
  const char* goal;  // empty: for information
  const char* meaning;
};

// A piece of the program that can be run alone.
struct Group {
  const char* name;
  std::vector<Key> keys;
  void (*run)(nlohmann::ordered_json& figures);  // sets every key
};

[[nodiscard]] Group comparison_group();  // compare() against reading
[[nodiscard]] Group files_group();       // writing, merging and judging many small tensors
[[nodiscard]] Group steps_group();       // training steps with and without TTrace
[[nodiscard]] Group passes_group();      // noise and forced passes of the reference program

}  // namespace ttrace::bench
