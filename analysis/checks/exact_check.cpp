#include "analysis/checks/exact_check.h"

#include "analysis/checks/gradient_factor.h"
#include "trace/base/dyadic_inputs.h"
#include "trace/base/kind.h"
#include "trace/sums/statistics.h"

#include <algorithm>
#include <span>
#include <unordered_set>

namespace ttrace {
namespace {

bool is_rounded_multiple(const Match& match) {
  return is_gradient(match.id.kind) && !match.reference.empty() && !match.candidate.empty() &&
         !is_power_of_two(factor_between(match.reference, match.candidate));
}

using Consumers = std::unordered_set<TensorId, TensorIdHash>;

// Inputs that are the very memory that another module returned.
Consumers consumers_of(const Trace& trace) {
  Consumers consumers;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Edge& edge : file.edges()) {
        consumers.insert(edge.consumer);
      }
    }
  }
  return consumers;
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
  const MergeResult golden = merge(shards);
  return golden.has_tensor() && golden.shape == reference.shape && golden.held == reference.held &&
         compare(golden.type,
                 golden.bytes.data(),
                 reference.type,
                 reference.bytes.data(),
                 element_count(golden.shape))
                 .different == 0;
}

bool has_dyadic_inputs(const Trace& trace) {
  const Section& data = trace.manifest().data;
  const auto found = data.find(kInputsKey);
  return found != data.end() && found->second == kDyadicInputs;
}

void mark_copied_inputs(const Trace& reference,
                        const Trace& candidate,
                        std::span<TensorVerdict> tensors) {
  const Consumers by_reference = consumers_of(reference);
  const Consumers by_candidate = consumers_of(candidate);
  for (TensorVerdict& tensor : tensors) {
    const Consumers& consumers = tensor.is_in_reference ? by_candidate : by_reference;
    if (tensor.fails(Question::kPresence) && consumers.contains(tensor.id)) {
      tensor.excuse(Excuse::kReplaced);
    }
  }
}

}  // namespace ttrace
