#include "analysis/checks/exact_check.h"

#include "analysis/align/producers.h"
#include "analysis/checks/gradient_factor.h"
#include "analysis/checks/values_check.h"
#include "trace/base/kind.h"

#include <algorithm>
#include <span>

namespace ttrace {
namespace {

bool is_rounded_multiple(const Match& match) {
  return is_gradient(match.id.kind) && !match.reference.empty() && !match.candidate.empty() &&
         !is_power_of_two(factor_between(match.reference, match.candidate));
}

}  // namespace

ExactCheck::ExactCheck(const Trace& golden, std::span<const Match> matches)
    : shards_(golden),
      gradients_(std::none_of(matches.begin(), matches.end(), is_rounded_multiple)) {
  for (const Match& match : matches) {
    if (match.id.kind == Kind::kParamGrad && match.candidate.empty()) {
      without_addends_.insert(match.id.path);
    }
  }
}

bool ExactCheck::must_be_equal(const TensorId& id, const MergeResult& reference) const {
  const std::span<const Shard> shards = shards_.of(id);
  if (shards.empty() || !is_of_graph(id.kind) || (is_gradient(id.kind) && !gradients_) ||
      (id.kind == Kind::kMainGrad && without_addends_.contains(id.path))) {
    return false;
  }
  const auto statistics = statistics_where_alike(merge(shards), reference);
  return statistics && statistics->different == 0;
}

void mark_copied_inputs(const Trace& reference,
                        const Trace& candidate,
                        std::span<TensorVerdict> tensors) {
  const RecordedProducers in_reference(reference);
  const RecordedProducers in_candidate(candidate);
  for (TensorVerdict& tensor : tensors) {
    const RecordedProducers& other = tensor.is_in_reference ? in_candidate : in_reference;
    if (tensor.fails(Question::kPresence) && !other.of(tensor.id).empty()) {
      tensor.excuse(Excuse::kReplaced);
    }
  }
}

}  // namespace ttrace
