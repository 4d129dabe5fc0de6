// The tensors among an operator's arguments or results.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

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

// The first of these tensors; undefined where there is none.
[[nodiscard]] inline at::Tensor first_tensor(const c10::IValue& value) {
  at::Tensor first;
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (!first.defined()) {
      first = tensor;
    }
  });
  return first;
}

[[nodiscard]] inline at::Tensor first_tensor(const std::vector<c10::IValue>& values) {
  for (const c10::IValue& value : values) {
    if (at::Tensor first = first_tensor(value); first.defined()) {
      return first;
    }
  }
  return {};
}

}  // namespace ttrace
