#include "analysis/diagnosis/addends.h"
#include "analysis/diagnosis/signatures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace ttrace {
namespace {

constexpr std::size_t kMostAddends = 64;

struct Addends {
  std::vector<Addend> list;
  std::vector<Values> values;  // logical, in the order of the list
};

// The shards of one addend, merged as if they were the whole sum.
std::optional<Values> merge_addend(std::span<const Shard> shards) {
  std::vector<Record> records;
  records.reserve(shards.size());
  for (const Shard& shard : shards) {
    Record record = *shard.record;
    record.placement.partial_index = 0;
    record.placement.partial_count = 1;
    records.push_back(std::move(record));
  }
  std::vector<Shard> alone(shards.begin(), shards.end());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].record = &records[i];
  }
  return Evidence::merged(alone);
}

bool add_microbatch(const Match& match, Addends& addends) {
  std::map<int, std::vector<Shard>> by_partial;
  // A micro-batch that the candidate never ran still is an addend that can be missing.
  for (const Shard& shard : match.candidate.empty() ? match.reference : match.candidate) {
    by_partial[shard.record->placement.partial_index].push_back(shard);
  }
  for (const auto& [partial, shards] : by_partial) {
    auto values = merge_addend(shards);
    if (!values) {
      return false;
    }
    Addend addend{.ranks = {}, .microbatch = match.id.microbatch};
    for (const Shard& shard : shards) {
      addend.ranks.push_back(match.candidate.empty() ? 0 : shard.rank);
    }
    addends.list.push_back(std::move(addend));
    addends.values.push_back(*std::move(values));
  }
  return addends.list.size() <= kMostAddends;
}

// The gradients of the parameter for every micro-batch; nothing where one cannot be read.
std::optional<Addends> addends_of(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  Addends addends;
  for (const Match& match : evidence.matches()) {
    if (match.id.step == id.step && match.id.kind == Kind::kParamGrad && match.id.path == id.path &&
        match.id.slot == id.slot && !add_microbatch(match, addends)) {
      return std::nullopt;
    }
  }
  return addends.list.size() < 2 ? std::nullopt : std::optional(std::move(addends));
}

// Whether the reference's gradient is their sum: else they are not what was accumulated.
bool add_up(const Addends& addends, const Values& reference) {
  constexpr double kRoughly = 0.2;
  Values sum{reference.shape, std::vector<double>(reference.data.size())};
  for (const Values& values : addends.values) {
    if (values.shape != reference.shape) {
      return false;
    }
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] += values.data[i];
    }
  }
  return distance(sum, reference) <= kRoughly * reference.norm();
}

std::optional<RankFit> fit_rank(const Shard& shard, const Addends& addends) {
  const Placement& placement = shard.record->placement;
  if (placement.partial_count != 1) {
    return std::nullopt;
  }
  const Values held = Evidence::local(shard);
  std::vector<std::vector<double>> columns;
  for (const Values& values : addends.values) {
    columns.push_back(Evidence::part(values, shard));
  }
  auto found = fit(columns, held.data);
  return found ? std::optional(RankFit{shard.rank, *std::move(found)}) : std::nullopt;
}

}  // namespace

std::optional<Diagnosis> find_gradient_addends(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(match);
  if (match.id.kind != Kind::kMainGrad || !reference) {
    return std::nullopt;
  }
  const auto addends = addends_of(evidence);
  if (!addends || !add_up(*addends, *reference)) {
    return std::nullopt;
  }
  std::vector<RankFit> ranks;
  for (const Shard& shard : match.candidate) {
    constexpr double kUnexplained = 0.2;  // of the rank's own norm
    auto found = fit_rank(shard, *addends);
    if (!found) {
      continue;  // its part of some addend is zero: a shard of the vocabulary without these tokens
    }
    if (found->fit.residual > kUnexplained * Evidence::local(shard).norm()) {
      return std::nullopt;
    }
    ranks.push_back(*std::move(found));
  }
  return read_coefficients(evidence, addends->list, ranks);
}

}  // namespace ttrace
