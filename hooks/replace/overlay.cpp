#include "hooks/replace/overlay.h"

#include "trace/file/record.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ttrace {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements converted at a time, so that they stay in cache

std::vector<std::byte> convert(const MergeResult& source, ElementType type, double scale) {
  if (source.type == type && scale == 1.0) {
    return {source.bytes.begin(), source.bytes.end()};
  }
  const std::int64_t count = element_count(source.shape);
  const std::size_t from = element_size(source.type);
  const std::size_t to = element_size(type);
  std::vector<std::byte> result(static_cast<std::size_t>(count) * to);
  std::array<double, kBlock> wide;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t size = std::min(kBlock, count - first);
    const auto at = static_cast<std::size_t>(first);
    to_double(source.type, source.bytes.data() + at * from, size, wide.data());
    for (std::int64_t i = 0; scale != 1.0 && i < size; ++i) {
      wide[static_cast<std::size_t>(i)] /= scale;
    }
    from_double(type, wide.data(), size, result.data() + at * to);
  }
  return result;
}

// Every local element is the logical one of the same index.
bool is_all_of(const Placement& placement) {
  Placement region = placement;
  region.scale = 1.0;
  return region.is_whole();
}

}  // namespace

std::vector<std::byte> overlay(const TensorCopy& current,
                               const Placement& placement,
                               const MergeResult& logical) {
  std::vector<std::byte> converted = convert(logical, current.type, placement.scale);
  if (is_all_of(placement)) {
    return converted;
  }
  Placement region = placement;
  region.scale = 1.0;  // taken care of
  std::vector<std::byte> result(current.bytes.size());
  extract(region, current.type, converted.data(), result.data());
  const std::size_t size = element_size(current.type);
  const std::vector<std::byte> ones(converted.size() / size, std::byte{1});
  std::vector<std::byte> held(result.size() / size);
  extract(region, ElementType::kU8, ones.data(), held.data());
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i] == std::byte{0}) {
      std::memcpy(&result[i * size], &current.bytes[i * size], size);
    }
  }
  return result;
}

}  // namespace ttrace
