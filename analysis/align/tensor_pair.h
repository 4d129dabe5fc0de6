// Two whole tensors of one logical shape, which are compared.
#pragma once

#include "trace/merge/merge.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace ttrace {

// Row-major tensors of one logical shape.
struct TensorPair {
  std::span<const std::int64_t> shape;
  ElementType reference_type = ElementType::kF32;
  const void* reference = nullptr;
  ElementType candidate_type = ElementType::kF32;
  const void* candidate = nullptr;
};

// Points into both. Requires: whole tensors of one shape.
[[nodiscard]] inline TensorPair pair_of(const MergeResult& reference,
                                        const MergeResult& candidate) {
  return {reference.shape,
          reference.type,
          reference.bytes.data(),
          candidate.type,
          candidate.bytes.data()};
}

// Where the element lies that comes that many elements later.
[[nodiscard]] inline const std::byte* advance(const void* data,
                                              ElementType type,
                                              std::int64_t elements) {
  return static_cast<const std::byte*>(data) +
         static_cast<std::size_t>(elements) * element_size(type);
}

// Both sides of a run of elements as doubles. The first element is number `start`.
using UsePair = std::function<void(
    std::span<const double> reference, std::span<const double> candidate, std::int64_t start)>;

// Visits the elements in row-major order, block by block.
void for_each_block(const TensorPair& pair, const UsePair& use);

}  // namespace ttrace
