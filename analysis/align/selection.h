// The tensors of a trace that a user wants to see: the one mechanism behind --filter, --exclude,
// --steps, --kinds and --ranks of every command.
//
// It decides what is compared, never how it is judged: bounds come from all tensors.
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/align/id_pattern.h"
#include "analysis/align/step_range.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Each rule narrows; an empty one lets everything pass.
struct SelectionRules {
  std::vector<IdPattern> filters;   // at least one is found in the id, as TTRACE_FILTER
  std::vector<IdPattern> excludes;  // none is found in the id
  std::optional<StepRange> steps;
  std::set<Kind> kinds;
  // One of these recorded it. The tensor is still merged from all its ranks.
  std::set<int> ranks;
};

class Selection {
 public:
  Selection() = default;  // everything
  explicit Selection(SelectionRules rules) : rules_(std::move(rules)) {}

  [[nodiscard]] bool wants_step(std::int64_t step) const;
  [[nodiscard]] bool wants_rank(int rank) const;
  // `shards`: what recorded it, on the side whose ranks are meant.
  [[nodiscard]] bool wants(const TensorId& id, std::span<const Shard> shards);

  // Rules that applied to nothing so far, one sentence each.
  [[nodiscard]] std::vector<std::string> unused() const;

 private:
  SelectionRules rules_;
  std::set<Kind> seen_kinds_;
  std::set<int> seen_ranks_;  // of those asked for
  bool seen_step_ = false;
};

}  // namespace ttrace
