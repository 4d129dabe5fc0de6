#include "analysis/cli/run/merged_writer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

namespace ttrace {

std::unique_ptr<MergedWriter> merged_writer(const std::string& path, const Manifest& manifest) {
  std::error_code unreadable;
  TTRACE_CHECK(!std::filesystem::exists(path, unreadable),
               FormatError,
               fmt::format("{} exists already; choose another name for -o, or remove it", path));
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) {
    return merged_hdf5(path, manifest);
  }
  if (path.ends_with(".safetensors")) {
    return merged_safetensors(path, manifest);
  }
  TTRACE_CHECK(path.ends_with("/") && path.size() > 1,
               UsageError,
               fmt::format("-o {} does not say what to write; pass a name that ends in .h5 or "
                           ".safetensors, or in / for a "
                           "folder of .npy files",
                           path));
  return merged_npy(path.substr(0, path.size() - 1));
}

}  // namespace ttrace
