// Records whose bytes lie in another file, see RankFile::borrow().
//
// Thread-safety: a constant and a free function without shared state.
#pragma once

#include "trace/file/record.h"

#include <string_view>

namespace ttrace {

// How the names of their datasets begin; those of a file's own are paths, which begin with a slash.
inline constexpr std::string_view kBorrowed = "borrowed:";

[[nodiscard]] inline bool is_borrowed(const Record& record) {
  return record.dataset.starts_with(kBorrowed);
}

}  // namespace ttrace
