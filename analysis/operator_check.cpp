#include "analysis/operator_check.h"

#include "analysis/limits.h"

#include <ttrace/statistics.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

template <class Index>
void add_to(Index& index, const Trace& trace) {
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Record& record : file.records()) {
        index[record.id].push_back({file.layout().rank, &record, file.bytes(record)});
      }
    }
  }
}

// Nothing where the two hold different elements.
std::optional<Statistics> statistics_of(const MergeResult& expected, const MergeResult& found) {
  if (!expected.has_tensor() || !found.has_tensor() || expected.shape != found.shape ||
      expected.held != found.held) {
    return std::nullopt;
  }
  return ttrace::compare(expected.type,
                         expected.bytes.data(),
                         found.type,
                         found.bytes.data(),
                         element_count(expected.shape));
}

// e^2 of the header: every rank's stored part was rounded once; of replicas one counts.
double squared_rounding(const Match& match, const Statistics& statistics) {
  const Record& first = *match.candidate.front().record;
  const double u = default_unit(first.type);
  if (first.placement.partial_count == 1) {
    return u * u * statistics.candidate_squared;
  }
  double sum = 0.0;
  for (const Shard& shard : match.candidate) {
    const double norm = shard.record->norm * shard.record->placement.scale;
    sum += norm * norm;
  }
  return u * u * sum;
}

}  // namespace

OperatorCheck::OperatorCheck(const ForcedTraces& traces) {
  add_to(wide_, traces.wide);
  add_to(native_, traces.native);
}

std::optional<OperatorResidual> OperatorCheck::compare(const Match& match,
                                                       const MergeResult& candidate) const {
  const auto wide = wide_.find(match.id);
  const auto native = native_.find(match.id);
  if (wide == wide_.end() || native == native_.end() || !is_floating(candidate.type) ||
      is_exact(match.id, candidate.type) || match.id.kind == Kind::kRouting ||
      match.id.kind == Kind::kScalar) {  // judged through the tensors that it summarises
    return std::nullopt;
  }
  const auto own = statistics_of(merge(wide->second), merge(native->second));
  const auto error = statistics_of(merge(wide->second), candidate);
  if (!own || !error) {
    return std::nullopt;
  }
  OperatorResidual result;
  result.error = error->error_norm();
  result.native = own->error_norm();
  result.structure = std::sqrt(squared_rounding(match, *error));
  result.factor = error->factor();
  result.native_factor = own->factor();
  result.limit = operator_limit(match.id.kind, error->count > 0 ? candidate.shape.size() : 0);
  return result;
}

}  // namespace ttrace
