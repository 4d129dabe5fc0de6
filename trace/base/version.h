// The version of this TTrace.
//
// Thread-safety: free function without shared state.
#pragma once

namespace ttrace {

// "0.2.0"
[[nodiscard]] const char* own_version();

}  // namespace ttrace
