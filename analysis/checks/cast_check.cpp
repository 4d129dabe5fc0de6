#include "analysis/checks/cast_check.h"

#include "analysis/align/values.h"
#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// What a side holds of a parameter, and what its master makes of it.
struct Cast {
  Values found;
  Values expected;
  ElementType type = ElementType::kF32;
};

std::optional<Cast> cast_of(std::span<const Shard> parameter, std::span<const Shard> master) {
  if (parameter.empty() || master.empty()) {
    return std::nullopt;
  }
  const ElementType type = parameter.front().record->type;
  const MergeResult found = merge(parameter);
  const MergeResult wide = merge(master);
  const bool is_rounded = is_floating(type) && is_floating(master.front().record->type) &&
                          element_size(type) < element_size(master.front().record->type);
  if (!is_rounded || !found.has_tensor() || !wide.has_tensor() || found.shape != wide.shape) {
    return std::nullopt;
  }
  Cast cast{values_of(found), values_of(wide), type};
  const auto count = static_cast<std::int64_t>(cast.expected.data.size());
  std::vector<std::byte> rounded(cast.expected.data.size() * element_size(type));
  from_double(type, cast.expected.data.data(), count, rounded.data());
  to_double(type, rounded.data(), count, cast.expected.data.data());
  return cast;
}

std::vector<std::int64_t> unlike(const Cast& cast) {
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < cast.found.data.size(); ++i) {
    const double found = cast.found.data[i];
    const double expected = cast.expected.data[i];
    if (found != expected && !(std::isnan(found) && std::isnan(expected))) {
      positions.push_back(static_cast<std::int64_t>(i));
    }
  }
  return positions;
}

}  // namespace

std::optional<Check> cast_check(const Match& parameter, const Match& master) {
  const auto reference = cast_of(parameter.reference, master.reference);
  if (!reference || !unlike(*reference).empty()) {
    return std::nullopt;
  }
  const auto candidate = cast_of(parameter.candidate, master.candidate);
  if (!candidate) {
    return std::nullopt;
  }
  constexpr auto kSource = "exact (its master, rounded)";
  const std::vector<std::int64_t> positions = unlike(*candidate);
  if (positions.empty()) {
    return passed(Question::kCast, kSource);
  }
  const auto first = static_cast<std::size_t>(positions.front());
  Check check = failed(
      Question::kCast,
      fmt::format("{} of {} are not the master rounded to {}: the first is at {}, {} where the "
                  "master is {}",
                  positions.size(),
                  counted(candidate->found.data.size(), "element"),
                  name_of(candidate->type),
                  index_text(unravel(positions.front(), candidate->found.shape)),
                  long_number(candidate->found.data[first]),
                  long_number(candidate->expected.data[first])));
  check.source = kSource;
  return check;
}

}  // namespace ttrace
