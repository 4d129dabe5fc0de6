// When two operators belong to the same call of a leaf module.
//
// Thread-safety: values and a free function without shared state.
#pragma once

#include "hooks/base/microbatch_state.h"

#include <span>
#include <string_view>

namespace ttrace {

// One operator, or several, that took parameters of a leaf module.
struct LeafCall {
  std::string_view module;
  std::span<const int> parameters;              // that it has used, by their number
  const MicrobatchState* microbatch = nullptr;  // null: none is open
  bool recompute = false;                       // runs inside backward
};

// Whether the operator `next` continues the call `pending` of a leaf module, whose latest result it
// takes if `takes_result`. A 3-D linear multiplies and then adds its bias in place: one call. A
// parameter that is used again begins the next call, as in linear(linear(x)).
[[nodiscard]] bool continues_call(const LeafCall& pending, const LeafCall& next, bool takes_result);

}  // namespace ttrace
