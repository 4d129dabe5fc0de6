// The scopes that are open on this thread.
//
// A scope belongs to the step in which it was opened. If a forward that runs again in backward
// throws, on a thread of autograd's, nobody closes the scopes that it leaves open there: the next
// step ignores them.
//
// Thread-safety: every thread has a stack of its own; begin_scope_epoch() while no step is traced.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace {

// The number of the traced step in this process.
[[nodiscard]] std::uint64_t scope_epoch();
// All scopes that are open on any thread are of an earlier step from here on.
void begin_scope_epoch();

struct OpenScope {
  std::string path;
  bool leaf = false;  // no known module below: its operators are its own
  const OpenScope* parent = nullptr;
  std::uint64_t epoch = scope_epoch();
  mutable int draws = 0;  // of random operators so far

  [[nodiscard]] bool is_stale() const { return epoch != scope_epoch(); }
};

// Null if none of this step is open.
[[nodiscard]] const OpenScope* innermost_scope();
// `scope` stays valid until another one takes its place; null if none is open.
void set_innermost_scope(const OpenScope* scope);

}  // namespace ttrace
