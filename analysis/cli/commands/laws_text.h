// What `ttrace laws` and `ttrace watch` say of the laws of a trace.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/checks/law_check.h"
#include "trace/file/trace_reader.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace::cli {

struct LawCounts {
  std::size_t left_out = 0;        // that the reference does not obey, or does not have
  std::vector<const Law*> broken;  // in the order of execution
  const Law* closest = nullptr;    // of those that hold; null: none
};

// Points into `laws`.
[[nodiscard]] LawCounts count(const std::vector<Law>& laws, std::size_t left_out);

[[nodiscard]] std::string text_of(const Trace& trace,
                                  const std::vector<Law>& laws,
                                  const LawCounts& counts);
[[nodiscard]] nlohmann::ordered_json json_of(const Trace& trace,
                                             const std::vector<Law>& laws,
                                             const LawCounts& counts);

}  // namespace ttrace::cli
