#include "hooks/base/scope_stack.h"

#include <atomic>

namespace ttrace {
namespace {

std::atomic<std::uint64_t> current_epoch{0};

// The scope may be gone once its step is over, so its epoch is kept separately.
struct Innermost {
  const OpenScope* scope = nullptr;
  std::uint64_t epoch = 0;
};
thread_local Innermost innermost_of_thread;

}  // namespace

std::uint64_t scope_epoch() {
  return current_epoch.load(std::memory_order_relaxed);
}

void begin_scope_epoch() {
  current_epoch.fetch_add(1, std::memory_order_relaxed);
}

const OpenScope* innermost_scope() {
  return innermost_of_thread.epoch == scope_epoch() ? innermost_of_thread.scope : nullptr;
}

void set_innermost_scope(const OpenScope* scope) {
  innermost_of_thread = {scope, scope_epoch()};
}

}  // namespace ttrace
