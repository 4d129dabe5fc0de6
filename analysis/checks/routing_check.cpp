#include "analysis/checks/routing_check.h"

#include "analysis/align/merged_copy.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

using Experts = std::span<const std::int64_t>;

bool same_set(Experts left, Experts right) {
  return std::is_permutation(left.begin(), left.end(), right.begin(), right.end());
}

Experts experts_of(const MergeResult& choices) {
  return {reinterpret_cast<const std::int64_t*>(choices.bytes.data()),
          choices.bytes.size() / sizeof(std::int64_t)};
}

// Number of choices per token of a tensor [..., k].
std::size_t choices_per_token(std::span<const std::int64_t> shape) {
  return shape.empty() ? 1 : static_cast<std::size_t>(std::max<std::int64_t>(1, shape.back()));
}

// Tokens that go to another set of experts than in the reference; see routing_check.h.
struct RoutingFlips {
  std::int64_t tokens = 0;
  std::int64_t flips = 0;
  std::int64_t illegal = 0;   // of them, those that round-off does not explain
  double largest_move = 0.0;  // by how much scores moved at least, over all flips
  double bound = 0.0;         // what round-off explains of that
  bool margins_known = false;
  std::int64_t worst_token = -1;  // the illegal one whose scores moved most, and its experts
  std::vector<std::int64_t> reference_experts;
  std::vector<std::int64_t> candidate_experts;
};

RoutingFlips compare_choices(const MergeResult& reference,
                             const MergeResult& candidate,
                             const Margins& margins,
                             const Bound& bound) {
  const Experts r = experts_of(reference);
  const Experts c = experts_of(candidate);
  const std::size_t k = choices_per_token(reference.shape);
  RoutingFlips flips;
  flips.bound = bound.value;
  flips.tokens = static_cast<std::int64_t>(r.size() / k);
  const bool judged = !margins.reference.empty() && !margins.candidate.empty();
  for (std::size_t token = 0; token < r.size() / k; ++token) {
    if (same_set(r.subspan(token * k, k), c.subspan(token * k, k))) {
      continue;
    }
    ++flips.flips;
    const double moved = judged ? margins.reference[token] + margins.candidate[token] : 0.0;
    // Written so that NaN is illegal as well.
    const bool legal = judged && moved <= bound.value;
    if (!legal && (flips.illegal++ == 0 || !(moved <= flips.largest_move))) {
      flips.worst_token = static_cast<std::int64_t>(token);
      const Experts of_reference = r.subspan(token * k, k);
      const Experts of_candidate = c.subspan(token * k, k);
      flips.reference_experts.assign(of_reference.begin(), of_reference.end());
      flips.candidate_experts.assign(of_candidate.begin(), of_candidate.end());
    }
    flips.largest_move = std::max(flips.largest_move, moved);
  }
  flips.margins_known = judged;
  return flips;
}

std::string sentence_of(const RoutingFlips& flips, std::span<const std::int64_t> shape) {
  const std::span<const std::int64_t> tokens = shape.first(shape.size() - (shape.empty() ? 0 : 1));
  const std::string why =
      flips.margins_known
          ? fmt::format(
                "round-off cannot explain this: scores moved by up to {}, but it explains {}",
                short_number(flips.largest_move),
                short_number(flips.bound))
          : "the reference recorded no margins, so this cannot be judged";
  return fmt::format(
      "{} of {} {} to other experts than in the reference; {}; token {} goes to experts {} instead "
      "of {}",
      flips.illegal,
      counted(flips.tokens, "token"),
      flips.illegal == 1 ? "goes" : "go",
      why,
      index_text(unravel(flips.worst_token, tokens)),
      index_text(flips.candidate_experts),
      index_text(flips.reference_experts));
}

// Slots in ascending order of their experts.
std::vector<std::size_t> slots_by_expert(Experts experts) {
  std::vector<std::size_t> slots(experts.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::ranges::stable_sort(slots, {}, [&](std::size_t slot) { return experts[slot]; });
  return slots;
}

bool is_one_per_choice(const MergeResult& tensor, const std::vector<std::int64_t>& choices) {
  return !tensor.held && !tensor.shape.empty() && !choices.empty() &&
         tensor.shape.back() == choices.back() &&
         element_count(tensor.shape) == element_count(choices);
}

}  // namespace

std::optional<Reordered> in_order_of_reference(const Match& choices, const MergeResult& tensor) {
  if (choices.reference.empty() || choices.candidate.empty() ||
      !is_one_per_choice(tensor, choices.reference.front().record->placement.logical_shape())) {
    return std::nullopt;
  }
  const MergeResult reference = merge(choices.reference);
  const MergeResult candidate = merge(choices.candidate);
  if (reference.type != ElementType::kI64 || candidate.type != ElementType::kI64 ||
      !reference.has_tensor() || !candidate.has_tensor() || reference.shape != candidate.shape) {
    return std::nullopt;
  }
  const Experts r = experts_of(reference);
  const Experts c = experts_of(candidate);
  const std::size_t k = choices_per_token(reference.shape);
  const std::size_t size = element_size(tensor.type);
  std::optional<Reordered> result;
  for (std::size_t at = 0; at + k <= r.size(); at += k) {
    const Experts of_reference = r.subspan(at, k);
    const Experts of_candidate = c.subspan(at, k);
    if (!std::ranges::equal(of_reference, of_candidate) && same_set(of_reference, of_candidate)) {
      if (!result) {
        result = Reordered{copy_of(tensor), 0};
      }
      ++result->tokens;
      const std::vector<std::size_t> from = slots_by_expert(of_candidate);
      const std::vector<std::size_t> to = slots_by_expert(of_reference);
      for (std::size_t i = 0; i < k; ++i) {
        std::memcpy(result->tensor.storage.data() + (at + to[i]) * size,
                    tensor.bytes.data() + (at + from[i]) * size,
                    size);
      }
    }
  }
  return result;
}

Check routing_check(const MergeResult& reference,
                    const MergeResult& candidate,
                    const Margins& margins,
                    const Bound& bound) {
  const RoutingFlips flips = compare_choices(reference, candidate, margins, bound);
  Check check;
  check.question = Question::kRouting;
  check.value = flips.largest_move;
  check.bound = flips.bound;
  check.holds = flips.illegal == 0;
  check.origin = bound.origin;
  check.source = bound.source;
  check.terms = {{Term::kTokens, static_cast<double>(flips.tokens)},
                 {Term::kFlips, static_cast<double>(flips.flips)},
                 {Term::kIllegal, static_cast<double>(flips.illegal)}};
  if (!check.holds) {
    check.sentence = sentence_of(flips, reference.shape);
  }
  return check;
}

bool has_flips(const Routing& reference, const Routing& candidate) {
  bool flips = false;
  if (reference.size() != candidate.size()) {
    return false;
  }
  for (const auto& [id, choices] : reference) {
    const auto found = candidate.find(id);
    if (found == candidate.end() || found->second.shape != choices.shape) {
      return false;
    }
    const std::size_t k = choices_per_token(choices.shape);
    const Experts r = choices.experts;
    const Experts c = found->second.experts;
    for (std::size_t at = 0; at + k <= r.size() && !flips; at += k) {
      flips = !same_set(r.subspan(at, k), c.subspan(at, k));
    }
  }
  return flips;
}

}  // namespace ttrace
