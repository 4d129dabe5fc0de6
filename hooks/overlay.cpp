#include "overlay.h"

#include <ttrace/record.h>

#include <cstring>

namespace ttrace {
namespace {

std::vector<std::byte> convert(const MergeResult& source, ElementType type, double scale) {
  if (source.type == type && scale == 1.0) {
    return {source.bytes.begin(), source.bytes.end()};
  }
  const std::int64_t count = element_count(source.shape);
  std::vector<double> wide(static_cast<std::size_t>(count));
  to_double(source.type, source.bytes.data(), count, wide.data());
  for (double& value : wide) {
    value /= scale;
  }
  std::vector<std::byte> result(wide.size() * element_size(type));
  from_double(type, wide.data(), count, result.data());
  return result;
}

}  // namespace

std::vector<std::byte> overlay(const TensorCopy& current,
                               const Placement& placement,
                               const MergeResult& logical) {
  const std::vector<std::byte> converted = convert(logical, current.type, placement.scale);
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
