// Constants and functions that all our HDF5 files share.
#pragma once

#include <cstddef>

namespace ttrace {

// Attribute of the root group: the version of the format.
inline constexpr const char* kFormatAttribute = "ttrace_format";
// The digests of all other attributes of the root group and of all tables, see file_digests.h;
// files of earlier versions have none.
inline constexpr const char* kDigestsAttribute = "digests";
// The token of the pass that wrote the file (TTRACE_RUN); absent where there was none.
inline constexpr const char* kRunAttribute = "run";

inline constexpr std::size_t kMetadataBlockBytes = std::size_t{1} << 20;

}  // namespace ttrace
