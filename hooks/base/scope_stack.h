// The scopes that are open on this thread.
#pragma once

#include <string>

namespace ttrace {

struct OpenScope {
  std::string path;
  bool leaf = false;  // no known module below: its operators are its own
  const OpenScope* parent = nullptr;
};

// Null where none is open.
[[nodiscard]] const OpenScope* innermost_scope();

}  // namespace ttrace
