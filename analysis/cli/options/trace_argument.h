// The trace folder that a command is given.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <boost/program_options/variables_map.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace::cli {

// The words without an option name.
[[nodiscard]] std::vector<std::string> words_of(
    const boost::program_options::variables_map& values);

// "1 word is", "3 words are": the subject of a complaint about their number.
[[nodiscard]] std::string words_given(const std::vector<std::string>& words);

// The one trace folder that a command is given. Throws UsageError for another number of words, and
// as require_trace_folder().
[[nodiscard]] std::string trace_folder_of(const boost::program_options::variables_map& values,
                                          const std::string& command);

// Throws UsageError if the folder does not exist, or if `ttrace check` made it and it holds several
// traces.
void require_trace_folder(const std::string& folder);

// The position of `id` among `ids`, which are those of the trace `where`. Throws UsageError that
// names the nearest ones.
[[nodiscard]] std::size_t find_tensor(const std::vector<std::string>& ids,
                                      const std::string& id,
                                      const std::string& where);

}  // namespace ttrace::cli
