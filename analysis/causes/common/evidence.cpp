#include "analysis/causes/common/evidence.h"

#include "analysis/align/model_numbers.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace ttrace {

Sides::Sides(Values r, Values c)
    : reference(std::move(r)), candidate(std::move(c)), error(distance(candidate, reference)) {}

std::vector<double> Sides::difference() const {
  std::vector<double> result = candidate.data;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] -= reference.data[i];
  }
  return result;
}

std::vector<RankPart> rank_parts(const std::vector<Shard>& shards, const Values& reference) {
  std::vector<RankPart> parts;
  for (const Shard& shard : shards) {
    const Placement& placement = shard.record->placement;
    if (placement.partial_count != 1 || placement.dims.size() != reference.shape.size() ||
        !has_elements(shard)) {
      return {};
    }
    Values own = local_values(shard);
    Values right{own.shape, values_at(reference.data, shard)};
    parts.push_back({&shard, Sides(std::move(right), std::move(own))});
  }
  return parts;
}

double allowed_rest(double error, double bound) {
  return std::max(std::min(2.0 * bound, 0.5 * error), 0.05 * error);
}

bool reproduces(double rest, double norm) {
  constexpr double kReproduced = 0.1;
  return rest <= kReproduced * norm;
}

bool copies_differ(const Match& match) {
  const auto& shards = match.candidate;
  for (auto left = shards.begin(); left != shards.end(); ++left) {
    for (auto right = left + 1; right != shards.end(); ++right) {
      if (left->record->placement == right->record->placement &&
          left->record->digest != right->record->digest) {
        return true;
      }
    }
  }
  return false;
}

Evidence::Evidence(std::span<const Match> matches,
                   const TensorVerdict& finding,
                   const Trace& candidate)
    : matches_(matches),
      finding_(finding),
      manifest_(candidate.manifest()),
      vocabulary_(candidate.manifest().roles),
      producers_(candidate) {
  for (const StepTrace& step : candidate.steps()) {
    for (const RankFile& file : step.ranks) {
      if (step.step == finding.id.step) {
        layouts_.emplace(file.layout().rank, &file.layout());
      }
    }
  }
  for (const Match& match : matches) {
    by_id_.emplace(match.id, &match);
  }
  match_ = find(finding.id);
  TTRACE_CHECK(match_ != nullptr, InternalError, to_string(finding.id), " is in no trace");
  sides_ = lay_side_by_side();
}

const Match* Evidence::find(const TensorId& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::optional<Values> Evidence::value(const Match* match, WhichRun run) {
  return match == nullptr
             ? std::nullopt
             : merged_values(run == WhichRun::kCandidate ? match->candidate : match->reference);
}

std::optional<Sides> Evidence::lay_side_by_side() const {
  auto reference = merged_values(match_->reference);
  auto candidate = merged_values(match_->candidate);
  if (!reference || !candidate) {
    return std::nullopt;
  }
  double error = distance(*candidate, *reference);
  if (copies_differ()) {
    for (const Shard& shard : match_->candidate) {
      Values copy = local_values(shard);
      if (!holds_all(shard) || !is_finite(copy)) {
        continue;
      }
      if (const double other = distance(copy, *reference); other > error) {
        candidate = std::move(copy);
        error = other;
      }
    }
  }
  if (!std::isfinite(error) || error <= bound()) {
    return std::nullopt;
  }
  return Sides(*std::move(reference), *std::move(candidate));
}

const TensorId* Evidence::producer_of(const TensorId& input) const {
  const std::map<int, TensorId>& producers = producers_.of(input);
  return producers.empty() ? nullptr : &producers.begin()->second;
}

double Evidence::tolerance(double error) const {
  constexpr double kRounding = 1e-9;  // what fitting in double leaves
  const double own = sides_ ? std::min(error, sides_->candidate.norm()) : error;
  return std::max(allowed_rest(own, bound()), kRounding * error);
}

double Evidence::bound() const {
  const Check* const operators = finding_.find(Question::kOperator);
  if (finding_.tier() == Tier::kT1 && operators != nullptr) {
    return operators->bound * operators->term(Term::kScale);
  }
  return finding_.comparison ? finding_.bound() : 0.0;
}

double Evidence::round_off_share() const {
  const bool of_operators = finding_.tier() == Tier::kT1;
  const Check* const check = finding_.find(of_operators ? Question::kOperator : Question::kWhole);
  return check == nullptr || !(bound() > 0.0) ? 0.0
                                              : check->find(Term::kScale).value_or(0.0) / bound();
}

std::vector<std::string> Evidence::axes() const {
  std::vector<std::string> names;
  if (layouts_.empty()) {
    return names;
  }
  for (const Axis& axis : layouts_.begin()->second->axes) {
    if (axis.size > 1 && axis.follows.empty()) {
      names.push_back(axis.name);
    }
  }
  return names;
}

const Layout& Evidence::layout(int rank) const {
  return *layouts_.at(rank);
}

int Evidence::axis_size(const std::string& axis) const {
  return layouts_.empty() ? 1 : layouts_.begin()->second->size(axis);
}

int Evidence::microbatches() const {
  std::set<std::int64_t> numbers;
  for (const Match& match : matches_) {
    if (match.id.step == finding_.id.step && match.id.microbatch != kNoMicrobatch) {
      numbers.insert(match.id.microbatch);
    }
  }
  return static_cast<int>(numbers.size());
}

const Match* Evidence::data(Role role, std::int64_t microbatch) const {
  for (const Match& match : records(Kind::kData)) {
    if (match.id.microbatch == microbatch && vocabulary_.is(role, match.id.path)) {
      return &match;
    }
  }
  return nullptr;
}

std::optional<std::vector<double>> Evidence::data_by_row(
    Role role, std::int64_t microbatch, std::span<const std::int64_t> shape) const {
  auto values = reference(data(role, microbatch));
  const bool has_rows = values && shape.size() >= 2 && values->shape.size() == 2;
  return has_rows ? by_row(*std::move(values), shape) : std::nullopt;
}

std::optional<double> Evidence::model_number(std::string_view key) const {
  return ttrace::model_number(manifest_.model, key);
}

}  // namespace ttrace
