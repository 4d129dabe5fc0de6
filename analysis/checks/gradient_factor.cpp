#include "analysis/checks/gradient_factor.h"

#include "analysis/align/values.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace ttrace {
namespace {

bool hold_powers_of_two(std::span<const Shard> shards) {
  const Record& record = *shards.front().record;
  return record.id.kind == Kind::kScale && record.type == ElementType::kE8M0;
}

}  // namespace

double factor_between(std::span<const Shard> reference, std::span<const Shard> candidate) {
  return candidate.front().record->placement.scale / reference.front().record->placement.scale;
}

bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

bool are_powers_of_two(std::span<const Shard> reference, std::span<const Shard> candidate) {
  return hold_powers_of_two(reference) && hold_powers_of_two(candidate);
}

void take_out_factor(double factor, const MergeResult& reference, MergeResult& candidate) {
  if (!(factor > 0.0) || is_power_of_two(factor)) {
    return;
  }
  int exponent = 0;
  const double odd = 2.0 * std::frexp(factor, &exponent);  // from 1 to below 2
  const std::vector<double> expected = values_of(reference).data;
  std::vector<double> values = values_of(candidate).data;
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
