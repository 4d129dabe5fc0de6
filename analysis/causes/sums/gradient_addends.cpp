#include "analysis/causes/common/addends.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

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
  return merged_values(alone);
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
  Values sum{reference.shape, std::vector<double>(reference.data.size())};
  for (const Values& values : addends.values) {
    if (values.shape != reference.shape) {
      return false;
    }
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] += values.data[i];
    }
  }
  return reproduces(distance(sum, reference), reference.norm());
}

// What a rank holds of the sum, beside its part of every addend.
struct AddendPart {
  std::vector<std::vector<double>> addends;
  std::vector<double> held;
  std::vector<double> reference;
};

struct PartFit {
  RankFit rank;
  std::optional<SliceRun> run;  // of its elements, where the fit is to these alone
};

double norm(std::span<const double> values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

bool explains(const Fit& fit, std::span<const double> held) {
  return reproduces(fit.residual, norm(held));
}

std::optional<Fit> fit_run(const AddendPart& part, const SliceRun& run) {
  std::vector<std::vector<double>> columns;
  for (const std::vector<double>& addend : part.addends) {
    const auto first = addend.begin() + static_cast<std::ptrdiff_t>(run.first);
    columns.emplace_back(first, first + static_cast<std::ptrdiff_t>(run.size()));
  }
  const auto held = std::span(part.held).subspan(run.first, run.size());
  auto found = fit(columns, held);
  return found && explains(*found, held) ? std::move(found) : std::nullopt;
}

// A bucket may have ended within the tensor: what lies behind is another sum than what lies before.
std::optional<SliceRun> damaged_run(const AddendPart& part, double bound) {
  constexpr double kLittle = 0.05;       // of the error
  constexpr std::size_t kPerAddend = 4;  // elements
  std::vector<double> energies;
  double error = 0.0;
  for (std::size_t i = 0; i < part.held.size(); ++i) {
    energies.push_back(std::pow(part.held[i] - part.reference[i], 2));
    error += energies.back();
  }
  const SliceRun run = run_of_error(energies, std::min(bound, kLittle * std::sqrt(error)));
  const bool enough = run.size() >= kPerAddend * part.addends.size();
  return enough && run.size() < energies.size() ? std::optional(run) : std::nullopt;
}

// `whole` is the fit to all of the part. Nothing where neither it nor one to a run explains what
// the rank holds.
std::optional<PartFit> fit_part(int rank, const AddendPart& part, Fit whole, double bound) {
  if (explains(whole, part.held)) {
    return PartFit{{rank, std::move(whole), error_of_sum(part.addends, part.held)}, std::nullopt};
  }
  const auto run = damaged_run(part, bound);
  auto found = run ? fit_run(part, *run) : std::nullopt;
  return found ? std::optional(
                     PartFit{{rank, *std::move(found), error_of_sum(part.addends, part.held)}, run})
               : std::nullopt;
}

AddendPart part_of(const Shard& shard, const Addends& addends, const Values& reference) {
  AddendPart part{{}, local_values(shard).data, values_at(reference, shard)};
  for (const Values& values : addends.values) {
    part.addends.push_back(values_at(values, shard));
  }
  return part;
}

// The elements that were fitted; empty where these are all.
std::string where_text(const PartFit& part) {
  return part.run ? fmt::format(" in elements {}-{} of rank {}'s part",
                                part.run->first,
                                part.run->last - 1,
                                part.rank.rank)
                  : "";
}

}  // namespace

std::optional<Hypothesis> find_gradient_addends(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(match);
  if (match.id.kind != Kind::kMainGrad || !reference) {
    return std::nullopt;
  }
  const auto addends = addends_of(evidence);
  if (!addends || !add_up(*addends, *reference)) {
    return std::nullopt;
  }
  std::vector<RankFit> whole;
  std::vector<RankFit> cut;
  std::string where;
  for (const Shard& shard : match.candidate) {
    if (shard.record->placement.partial_count != 1) {
      continue;
    }
    const AddendPart part = part_of(shard, *addends, *reference);
    auto all = fit(part.addends, part.held);
    if (!all) {
      continue;  // its part of some addend is zero: a shard of the vocabulary without these tokens
    }
    auto found = fit_part(shard.rank, part, *std::move(all), evidence.bound());
    if (!found) {
      return std::nullopt;
    }
    where = where.empty() ? where_text(*found) : where;
    (found->run ? cut : whole).push_back(std::move(found->rank));
  }
  auto found = read_coefficients(evidence, addends->list, cut.empty() ? whole : cut);
  if (found) {
    found->sentence += where;
    found->coefficients += where.empty() ? 0.0 : 2.0;  // where it begins and ends
  }
  return found;
}

}  // namespace ttrace
