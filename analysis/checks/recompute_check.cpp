#include "analysis/checks/recompute_check.h"

#include "analysis/checks/structure.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"
#include "trace/sums/statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ttrace {

RecomputeResult check_recompute(std::span<const Shard> first,
                                std::span<const Shard> again,
                                double of_copies) {
  constexpr auto kWhere = "first forward";
  RecomputeResult result;
  const auto add = [&](std::vector<Check> checks) {
    std::ranges::move(checks, std::back_inserter(result.checks));
  };
  MergeResult value = merge(again);
  add(structure_checks(value, of_copies));
  MergeResult expected = merge(first);  // its own verdict reports what is wrong with it
  add(type_checks(first, again, kWhere));
  if (!expected.has_values() || !have_one_shape(expected, value)) {
    add(shape_checks(expected, value, kWhere));
    return result;
  }
  add(row_checks(expected, value, kWhere, "recomputed value"));
  const Statistics statistics = statistics_of(expected, value);
  result.comparison = comparison_of(statistics, expected.shape);
  if (statistics.different > 0 && !(of_copies > 0.0 && statistics.max_difference <= of_copies)) {
    result.checks.push_back(
        failed(Question::kRecompute,
               fmt::format("{} the first forward, with an error of {} of the first forward's norm",
                           statistics.is_estimate
                               ? "the recomputed value differs from"
                               : fmt::format("{} of {} of the recomputed value differ from",
                                             statistics.different,
                                             counted(statistics.count, "element")),
                           short_number(statistics.relative_error()))));
  }
  return result;
}

}  // namespace ttrace
