#include "trace_argument.h"

#include "run_directory.h"

#include <ttrace/error.h>

#include <filesystem>

namespace ttrace::cli {

std::vector<std::string> words_of(const boost::program_options::variables_map& values,
                                  const std::string& name) {
  return values.count(name) == 0 ? std::vector<std::string>()
                                 : values[name].as<std::vector<std::string>>();
}

void require_trace_folder(const std::string& folder) {
  std::error_code error;
  TTRACE_CHECK(
      std::filesystem::is_directory(folder, error), UsageError, "there is no folder ", folder);
  TTRACE_CHECK(!is_run_directory(folder),
               UsageError,
               folder,
               " was made by ttrace check and holds two traces; say which: ",
               folder,
               "/reference or ",
               folder,
               "/candidate");
}

}  // namespace ttrace::cli
