// A tensor's values, taken out of torch.
//
// Thread-safety: plain values.
#pragma once

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {

struct TensorCopy {
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // row-major and contiguous
};

}  // namespace ttrace
