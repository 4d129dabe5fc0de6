// One element as a double, on the host and on a GPU; exact but for i64 beyond 2^53.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/widen.h"
#include "trace/kernels/grid.h"

#include <ttrace/element_type.h>

#include <cstdint>

namespace ttrace {

// Element `index` of a tensor; on a GPU it lies at a multiple of its size.
TTRACE_HOST_DEVICE inline double element_as_double(ElementType type,
                                                   const void* data,
                                                   std::int64_t index) {
  switch (type) {
    case ElementType::kF64:
      return load_element<double>(data, index);
    case ElementType::kF32:
      return static_cast<double>(load_element<float>(data, index));
    case ElementType::kF16:
      return widen_half(load_element<std::uint16_t>(data, index));
    case ElementType::kBF16:
      return widen_brain(load_element<std::uint16_t>(data, index));
    case ElementType::kI64:
      return static_cast<double>(load_element<std::int64_t>(data, index));
    case ElementType::kI32:
      return static_cast<double>(load_element<std::int32_t>(data, index));
    case ElementType::kU8:
      return static_cast<double>(load_element<std::uint8_t>(data, index));
    case ElementType::kBool:
      return load_element<std::uint8_t>(data, index) != 0 ? 1.0 : 0.0;
    case ElementType::kE4M3:
      return widen_e4m3(load_element<std::uint8_t>(data, index));
    case ElementType::kE5M2:
      return widen_e5m2(load_element<std::uint8_t>(data, index));
    case ElementType::kE8M0:
      return widen_e8m0(load_element<std::uint8_t>(data, index));
    case ElementType::kE2M1:
      return widen_e2m1(load_element<std::uint8_t>(data, index));
  }
  return quiet_nan();
}

// Size of one element in bytes; element_size() runs on the host alone.
TTRACE_KERNEL int bytes_of_element(ElementType type) {
  switch (type) {
    case ElementType::kF64:
    case ElementType::kI64:
      return 8;
    case ElementType::kF32:
    case ElementType::kI32:
      return 4;
    case ElementType::kF16:
    case ElementType::kBF16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace ttrace
