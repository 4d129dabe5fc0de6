// Torch's name of an element type; element_type_of() of tensor_access.h is the inverse.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <c10/core/ScalarType.h>

namespace ttrace {

[[nodiscard]] inline at::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return at::kDouble;
    case ElementType::kF32:
      return at::kFloat;
    case ElementType::kF16:
      return at::kHalf;
    case ElementType::kBF16:
      return at::kBFloat16;
    case ElementType::kI64:
      return at::kLong;
    case ElementType::kI32:
      return at::kInt;
    case ElementType::kU8:
      return at::kByte;
    case ElementType::kBool:
      return at::kBool;
    case ElementType::kE4M3:
      return at::kFloat8_e4m3fn;
    case ElementType::kE5M2:
      return at::kFloat8_e5m2;
    case ElementType::kE8M0:
      return at::kFloat8_e8m0fnu;
    case ElementType::kE2M1:  // torch has two to a byte alone
      break;
  }
  TTRACE_THROW(InternalError, "element type ", static_cast<int>(type), " has no type of torch");
}

}  // namespace ttrace
