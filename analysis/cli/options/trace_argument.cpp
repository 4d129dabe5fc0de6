#include "analysis/cli/options/trace_argument.h"

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/run/run_directory.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace ttrace::cli {

std::vector<std::string> words_of(const boost::program_options::variables_map& values) {
  return values.count(kWords) == 0 ? std::vector<std::string>()
                                   : values[kWords].as<std::vector<std::string>>();
}

std::string words_given(const std::vector<std::string>& words) {
  return words.size() == 1 ? "1 word is" : fmt::format("{} words are", words.size());
}

std::string trace_folder_of(const boost::program_options::variables_map& values,
                            const std::string& command) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(words.size() == 1,
               UsageError,
               fmt::format("{} needs one trace folder, but {} given", command, words_given(words)));
  require_trace_folder(words[0]);
  return words[0];
}

void require_trace_folder(const std::string& folder) {
  std::error_code error;
  TTRACE_CHECK(
      std::filesystem::is_directory(folder, error), UsageError, "there is no folder ", folder);
  TTRACE_CHECK(!is_run_directory(folder),
               UsageError,
               fmt::format("{0} was made by ttrace check and holds two traces; choose "
                           "{0}/reference or {0}/candidate",
                           folder));
}

std::size_t find_tensor(const std::vector<std::string>& ids,
                        const std::string& id,
                        const std::string& where) {
  const auto found = std::ranges::find(ids, id);
  if (found != ids.end()) {
    return static_cast<std::size_t>(found - ids.begin());
  }
  TTRACE_CHECK(
      !ids.empty(), UsageError, fmt::format("{} holds no tensor; run its pass again", where));
  constexpr std::size_t kSuggested = 3;
  TTRACE_THROW(UsageError,
               fmt::format("there is no tensor '{}' in {}; the nearest are {}",
                           id,
                           where,
                           fmt::join(nearest_few(id, ids, kSuggested), ", ")));
}

}  // namespace ttrace::cli
