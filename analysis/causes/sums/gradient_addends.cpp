// A main gradient as a sum of the parameter's gradients, by micro-batch and rank.
#include "analysis/causes/common/addends.h"
#include "analysis/causes/signatures.h"
#include "analysis/causes/sums/remade_addends.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// The shards of one addend, merged as if they were the whole sum.
std::optional<Values> merge_addend(std::vector<Shard> shards) {
  std::vector<Record> records;
  records.reserve(shards.size());
  for (Shard& shard : shards) {
    Record& record = records.emplace_back(*shard.record);
    record.placement.partial_index = 0;
    record.placement.partial_count = 1;
    shard.record = &record;
  }
  return merged_values(shards);
}

bool add_microbatch(const Match& match, const Values& sum, AddendColumns& addends) {
  std::map<int, std::vector<Shard>> by_partial;
  // A micro-batch that the candidate never ran still is an addend that can be missing.
  for (const Shard& shard : match.candidate.empty() ? match.reference : match.candidate) {
    by_partial[shard.record->placement.partial_index].push_back(shard);
  }
  for (const auto& [partial, shards] : by_partial) {
    auto values = merge_addend(shards);
    if (!values || values->shape != sum.shape) {
      return false;
    }
    Addend& addend = addends.list.emplace_back(Addend{{}, match.id.microbatch});
    for (const Shard& shard : shards) {
      addend.ranks.push_back(match.candidate.empty() ? 0 : shard.rank);
    }
    addends.columns.push_back(std::move(values->data));
  }
  return addends.list.size() <= kMostAddends;
}

// The gradients of the parameter for every micro-batch, recorded or else computed again; none where
// one cannot be read, or where the reference's gradient is not their sum.
AddendColumns addends_of(const Evidence& evidence, const Values& reference) {
  AddendColumns addends;
  for (const Match& match : evidence.records(Kind::kParamGrad)) {
    TensorId sum = as_kind(match.id, Kind::kMainGrad);
    sum.microbatch = evidence.finding().id.microbatch;
    if (sum == evidence.finding().id && !add_microbatch(match, reference, addends)) {
      return {};
    }
  }
  if (addends.list.empty()) {
    return remade_addends(evidence, reference);
  }
  const bool is_sum = addends.columns.size() > 1 && is_sum_of(addends.columns, reference.data);
  return is_sum ? std::move(addends) : AddendColumns();
}

// Elements [first, last) of what a rank holds.
struct Run {
  std::size_t first = 0;
  std::size_t last = 0;

  [[nodiscard]] std::span<const double> of(std::span<const double> values) const {
    return values.subspan(first, last - first);
  }
};

// A bucket may have ended within the tensor: what lies behind is another sum than what lies before.
// The run with the error in it: its ends, the smaller one first, are left off while they hold next
// to nothing.
Run damaged_run(const Sides& sides, double bound) {
  constexpr double kLittle = 0.05;  // of the error
  const std::vector<double> d = sides.difference();
  const double rest = std::min(bound, kLittle * sides.error);
  Run run{0, d.size()};
  double left_out = 0.0;
  while (run.first < run.last) {
    const bool front = std::abs(d[run.first]) <= std::abs(d[run.last - 1]);
    left_out = std::hypot(left_out, d[front ? run.first : run.last - 1]);
    if (left_out > rest) {
      break;
    }
    run.first += front ? 1 : 0;
    run.last -= front ? 0 : 1;
  }
  return run;
}

std::optional<RankFit> fit_run(const RankPart& part,
                               const std::vector<std::vector<double>>& columns,
                               const Run& run) {
  constexpr std::size_t kPerAddend = 4;  // elements
  std::vector<std::vector<double>> cut;
  for (const std::vector<double>& column : columns) {
    const auto values = run.of(column);
    cut.emplace_back(values.begin(), values.end());
  }
  const auto held = run.of(part.sides.candidate.data);
  const bool is_part =
      held.size() >= kPerAddend * columns.size() && held.size() < part.sides.size();
  return is_part ? fit_rank(part.rank(), cut, cut.size(), held) : std::nullopt;
}

}  // namespace

Hypotheses find_gradient_addends(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference =
      match.id.kind == Kind::kMainGrad ? evidence.reference(&match) : std::nullopt;
  const AddendColumns addends = reference ? addends_of(evidence, *reference) : AddendColumns();
  std::vector<RankFit> whole;
  std::vector<RankFit> cut;
  std::string where;
  for (const RankPart& part :
       addends.list.empty() ? std::vector<RankPart>() : rank_parts(match.candidate, *reference)) {
    std::vector<std::vector<double>> columns;
    for (const std::vector<double>& column : addends.columns) {
      columns.push_back(values_at(column, *part.shard));
    }
    const std::vector<double>& held = part.sides.candidate.data;
    if (!fit(columns, held)) {
      continue;  // its part of some addend is zero: a shard of the vocabulary without these tokens
    }
    if (auto found = fit_rank(part.rank(), columns, columns.size(), held)) {
      whole.push_back(*std::move(found));
      continue;
    }
    const Run run = damaged_run(part.sides, evidence.bound());
    auto found = fit_run(part, columns, run);
    if (!found) {
      return {};
    }
    cut.push_back(*std::move(found));
    if (where.empty()) {
      where =
          fmt::format(" in elements {}-{} of rank {}'s part", run.first, run.last - 1, part.rank());
    }
  }
  Hypotheses found = read_coefficients(evidence, addends.list, cut.empty() ? whole : cut);
  for (Hypothesis& each : found) {
    each.sentence += where;
    each.coefficients += where.empty() ? 0.0 : 2.0;  // where it begins and ends
  }
  return found;
}

}  // namespace ttrace
