// What `ttrace laws` and `ttrace watch` say of the laws of a trace.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/checks/law_check.h"
#include "trace/file/trace_reader.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::cli {

// --reference TRACE of both commands.
void add_obeyed_option(boost::program_options::options_description& named);
// The laws of that trace; nothing where none is given. Throws as laws_of(), and UsageError for what
// is no trace.
[[nodiscard]] std::optional<std::vector<Law>> obeyed_laws(
    const boost::program_options::variables_map& values);

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
