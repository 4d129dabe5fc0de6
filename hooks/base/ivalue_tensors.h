// The tensors among an operator's arguments or results.
#pragma once

#include <ATen/core/ivalue.h>

namespace ttrace {

// Calls visit(const at::Tensor&) for every defined tensor, lists of tensors included.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) {
        visit(item.toTensor());
      }
    }
  }
}

}  // namespace ttrace
