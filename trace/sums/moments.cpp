#include "trace/sums/moments.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// So few elements of all tensors stay in a core's cache until every pair has had them.
constexpr std::int64_t kStep = 8 * kStatisticsBlock;

const std::byte* at(const TensorBytes& tensor, std::int64_t element) {
  return tensor.bytes + static_cast<std::size_t>(element) * element_size(tensor.type);
}

Statistics compare_step(const SummedPair& pair, std::int64_t start, std::int64_t count) {
  return compare(pair.reference.type,
                 at(pair.reference, start),
                 pair.other.type,
                 at(pair.other, start),
                 count,
                 start);
}

}  // namespace

std::vector<Moments> moments_of(std::span<const std::int64_t> shape,
                                std::span<const SummedPair> pairs) {
  const std::int64_t elements =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<Moments> moments(pairs.size());
  std::vector<std::optional<SliceWalk>> walks(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [reference, other, with_slices] = pairs[i];
    if (with_slices) {
      walks[i].emplace(shape, reference.type, reference.bytes, other.type, other.bytes);
    }
  }
  for (std::int64_t start = 0; start < elements; start += kStep) {
    const std::int64_t count = std::min(kStep, elements - start);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      moments[i].all.merge(compare_step(pairs[i], start, count));
      if (walks[i]) {
        walks[i]->go_on_to(start + count);
      }
    }
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (walks[i]) {
      moments[i].slices = std::move(*walks[i]).finish();
    }
  }
  return moments;
}

}  // namespace ttrace
