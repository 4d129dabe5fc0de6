#include "analysis/cli/run/temporary_folder.h"

#include <ttrace/error.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace ttrace::cli {

TemporaryFolder::TemporaryFolder(const std::string& name) {
  std::string pattern = (fs::temp_directory_path() / ("ttrace-" + name + "-XXXXXX")).string();
  TTRACE_CHECK(mkdtemp(pattern.data()) != nullptr,
               UsageError,
               "cannot create a folder like ",
               pattern,
               ": ",
               std::generic_category().message(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  if (!kept_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
}

}  // namespace ttrace::cli
