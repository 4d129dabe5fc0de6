// The scopes that are open on this thread.
//
// Thread-safety: every thread has a stack of its own.
#pragma once

#include <string>

namespace ttrace {

struct OpenScope {
  std::string path;
  bool leaf = false;  // no known module below: its operators are its own
  const OpenScope* parent = nullptr;
};

// Null if none is open.
[[nodiscard]] const OpenScope* innermost_scope();
// `scope` stays valid until another one takes its place; null if none is open.
void set_innermost_scope(const OpenScope* scope);

}  // namespace ttrace
