#include "analysis/bounds/coverage.h"

#include "analysis/bounds/limits.h"

#include <map>

namespace ttrace {

namespace {

// A learning rate or a counter, of which no noise is to be expected.
bool is_setting(const Match& match) {
  const Record& record = *match.reference.front().record;
  return match.id.kind == Kind::kState && element_count(record.placement.logical_shape()) == 1;
}

}  // namespace

std::optional<NoiseCoverage> coverage_of(const NoiseModel& noise, std::span<const Match> matches) {
  NoiseCoverage coverage;
  std::map<Kind, std::size_t> untouched;
  for (const Match& match : matches) {
    const TensorNoise* const moved = noise.find(match.id);
    if (moved == nullptr || match.reference.empty() ||
        is_exact(match.id, match.reference.front().record->type) || is_setting(match)) {
      continue;
    }
    if (!moved->covered) {
      return std::nullopt;
    }
    ++coverage.tensors;
    if (moved->mean_squared > 0.0) {
      ++coverage.reached;
    } else if (moved->untouched()) {
      ++untouched[match.id.kind];
    }
  }
  coverage.untouched.assign(untouched.begin(), untouched.end());
  return coverage.tensors == 0 ? std::nullopt : std::optional(coverage);
}

}  // namespace ttrace
