// The folder that a mistyped path may have meant.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <string>

namespace ttrace::cli {

// Whether `text` can only be a path: one word with a slash, of which the system has nothing.
[[nodiscard]] bool is_missing_path(const std::string& text);

// The existing folder whose path is nearest to `path`, part by part; empty where nothing is near.
[[nodiscard]] std::string nearest_folder(const std::string& path);

}  // namespace ttrace::cli
