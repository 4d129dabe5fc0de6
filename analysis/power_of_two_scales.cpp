#include "analysis/power_of_two_scales.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace ttrace {
namespace {

bool holds_powers_of_two(std::span<const Shard> shards) {
  const Record& record = *shards.front().record;
  return record.id.kind == Kind::kScale && record.type == ElementType::kE8M0;
}

std::vector<double> values_of(const MergeResult& tensor) {
  std::vector<double> values(static_cast<std::size_t>(element_count(tensor.shape)));
  to_double(tensor.type, tensor.bytes.data(), std::ssize(values), values.data());
  return values;
}

}  // namespace

double factor_between_scales(std::span<const Shard> reference, std::span<const Shard> candidate) {
  if (!holds_powers_of_two(reference) || !holds_powers_of_two(candidate)) {
    return 1.0;
  }
  return candidate.front().record->placement.scale / reference.front().record->placement.scale;
}

void take_out_factor(double factor, const MergeResult& reference, MergeResult& candidate) {
  int exponent = 0;
  const double odd = 2.0 * std::frexp(factor, &exponent);  // from 1 to below 2
  if (odd == 1.0 || !(odd > 1.0)) {
    return;
  }
  const std::vector<double> expected = values_of(reference);
  std::vector<double> values = values_of(candidate);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double smaller = values[i] / odd;
    const double larger = 2.0 * smaller;
    values[i] = std::abs(larger - expected[i]) < std::abs(smaller - expected[i]) ? larger : smaller;
  }
  candidate.storage.resize(values.size() * sizeof(double));
  std::memcpy(candidate.storage.data(), values.data(), candidate.storage.size());
  candidate.bytes = candidate.storage;
  candidate.type = ElementType::kF64;
}

}  // namespace ttrace
