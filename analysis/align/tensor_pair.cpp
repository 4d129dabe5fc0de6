#include "analysis/align/tensor_pair.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace ttrace {
void for_each_block(const TensorPair& pair, const UsePair& use) {
  constexpr std::int64_t kBlock = 1024;
  const std::int64_t count =
      element_count(std::vector<std::int64_t>(pair.shape.begin(), pair.shape.end()));
  std::array<double, kBlock> reference{};
  std::array<double, kBlock> candidate{};
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t block = std::min(kBlock, count - start);
    const auto size = static_cast<std::size_t>(block);
    to_double(pair.reference_type,
              advance(pair.reference, pair.reference_type, start),
              block,
              reference.data());
    to_double(pair.candidate_type,
              advance(pair.candidate, pair.candidate_type, start),
              block,
              candidate.data());
    use(std::span(reference).first(size), std::span(candidate).first(size), start);
  }
}

}  // namespace ttrace
