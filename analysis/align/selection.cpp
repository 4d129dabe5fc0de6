#include "analysis/align/selection.h"

#include <fmt/core.h>

namespace ttrace {

bool Selection::wants_step(std::int64_t step) const {
  return !rules_.steps || (step >= rules_.steps->first && step < rules_.steps->last);
}

bool Selection::wants_rank(int rank) const {
  return rules_.ranks.empty() || rules_.ranks.contains(rank);
}

// Every rule is tried, whatever the others return, so that unused() is right.
bool Selection::wants(const TensorId& id, std::span<const Shard> shards) {
  const bool by_text = !rules_.filters.empty() || !rules_.excludes.empty();
  const std::string text = by_text ? to_string(id) : std::string();
  bool wanted = any_found_in(rules_.filters, text) || rules_.filters.empty();
  wanted = !any_found_in(rules_.excludes, text) && wanted;
  const bool step = wants_step(id.step);
  seen_step_ = seen_step_ || step;
  seen_kinds_.insert(id.kind);
  bool held = rules_.ranks.empty();
  for (const Shard& shard : shards) {
    if (rules_.ranks.contains(shard.rank)) {
      seen_ranks_.insert(shard.rank);
      held = true;
    }
  }
  return wanted && step && held && (rules_.kinds.empty() || rules_.kinds.contains(id.kind));
}

std::vector<std::string> Selection::unused() const {
  std::vector<std::string> sentences;
  add_unused(rules_.filters, "tensor id", sentences);
  add_unused(rules_.excludes, "tensor id", sentences);
  if (rules_.steps && !seen_step_) {
    sentences.push_back(fmt::format("--steps {} selects no tensor", to_string(*rules_.steps)));
  }
  for (const Kind kind : rules_.kinds) {
    if (!seen_kinds_.contains(kind)) {
      sentences.push_back(
          fmt::format("--kinds names {}, but there is no tensor of this kind", name_of(kind)));
    }
  }
  for (const int rank : rules_.ranks) {
    if (!seen_ranks_.contains(rank)) {
      sentences.push_back(fmt::format("--ranks names rank {}, which recorded no tensor", rank));
    }
  }
  return sentences;
}

}  // namespace ttrace
