#include "analysis/causes/common/evidence.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

namespace ttrace {
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
    : matches_(matches), finding_(finding), manifest_(candidate.manifest()) {
  for (const StepTrace& step : candidate.steps()) {
    for (const RankFile& file : step.ranks) {
      layouts_.emplace(file.layout().rank, &file.layout());
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

std::optional<Values> Evidence::reference(const Match& match) const {
  return merged_values(match.reference);
}

std::optional<Values> Evidence::candidate(const Match& match) const {
  return merged_values(match.candidate);
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
  return Sides{*std::move(reference), *std::move(candidate), error};
}

double Evidence::tolerance(double error) const {
  return std::max(std::min(2.0 * bound(), 0.5 * error), 0.05 * error);
}

double Evidence::bound() const {
  const Check* const operators = finding_.find(Question::kOperator);
  if (finding_.tier() == Tier::kT1 && operators != nullptr) {
    return operators->bound * operators->term("scale");
  }
  return finding_.comparison ? finding_.bound() : 0.0;
}

std::vector<std::string> Evidence::axes() const {
  std::vector<std::string> names;
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
  return layouts_.begin()->second->size(axis);
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

std::optional<double> Evidence::model_number(const std::string& key) const {
  const auto found = manifest_.model.find(key);
  if (found == manifest_.model.end()) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  const bool whole = end != found->second.c_str() && *end == '\0';
  return whole ? std::optional(value) : std::nullopt;
}

}  // namespace ttrace
