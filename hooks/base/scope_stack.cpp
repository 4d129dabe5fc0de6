#include "hooks/base/scope_stack.h"

namespace ttrace {
namespace {

thread_local const OpenScope* innermost = nullptr;

}  // namespace

const OpenScope* innermost_scope() {
  return innermost;
}

void set_innermost_scope(const OpenScope* scope) {
  innermost = scope;
}

}  // namespace ttrace
