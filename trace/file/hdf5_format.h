// Constants and functions that all our HDF5 files share.
#pragma once

#include <cstddef>

namespace ttrace {

// Attribute of the root group: the version of the format.
inline constexpr const char* kFormatAttribute = "ttrace_format";

inline constexpr std::size_t kMetadataBlockBytes = std::size_t{1} << 20;

}  // namespace ttrace
