#include "analysis/causes/diagnose.h"

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/signatures.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// A description that is longer by so many bits is 1/8 as probable.
constexpr double kNear = 3.0;

struct Scored {
  Hypothesis hypothesis;
  double bits = 0.0;
};

Hypotheses ask(const Finder& finder, const Evidence& evidence) {
  if (const auto* const of_records = std::get_if<0>(&finder)) {
    return (*of_records)(evidence);
  }
  const Sides* const sides = evidence.sides();
  return sides == nullptr ? Hypotheses() : std::get<1>(finder)(evidence, *sides);
}

// The order of hypotheses of equal length depends on what they say alone.
bool shorter(const Scored& left, const Scored& right) {
  return std::tie(left.bits, left.hypothesis.signature, left.hypothesis.sentence) <
         std::tie(right.bits, right.hypothesis.signature, right.hypothesis.sentence);
}

// Whether the signature says how numbers differ, and not what a program did.
bool only_describes(Signature signature) {
  return signature == Signature::kWrongFactor || signature == Signature::kConstantBias ||
         signature == Signature::kLocalised;
}

// That a forward which ran again does not repeat the first one is a fact, and no hypothesis. What
// only describes its numbers is no cause next to it, however well it does: a module that multiplied
// by a wrong number would have done so in the first forward, too.
Hypothesis cause_of(const Evidence& evidence, const std::vector<Scored>& found) {
  const Hypothesis& best = found.front().hypothesis;
  const auto again = std::ranges::find(
      found, Signature::kRecompute, [](const Scored& each) { return each.hypothesis.signature; });
  if (evidence.finding().symptom() != Symptom::kRecompute || !only_describes(best.signature) ||
      again == found.end()) {
    return best;
  }
  Hypothesis cause = again->hypothesis;
  cause.sentence += ". Next to the first forward as the reference: " + best.sentence;
  cause.named.axes = best.named.axes;
  cause.named.factors = best.named.factors;
  return cause;
}

}  // namespace

std::span<const Finder> all_finders() {
  static const std::vector<Finder> kFinders = {find_attention,
                                               find_claimed,
                                               find_diverged_copies,
                                               find_duplicated_part,
                                               find_extra_addend,
                                               find_fp8_scale,
                                               find_gradient_addends,
                                               find_layer_number,
                                               find_linear_addends,
                                               find_local_norm,
                                               find_loss_rule,
                                               find_misrouted_rows,
                                               find_multiple,
                                               find_offset,
                                               find_optimizer,
                                               find_order,
                                               find_other_record,
                                               find_other_variant,
                                               find_place,
                                               find_positions,
                                               find_precision,
                                               find_rank_statistics,
                                               find_stale,
                                               find_symptom,
                                               find_transposed,
                                               find_unsummed_copies,
                                               find_weight_gradient};
  return kFinders;
}

std::optional<Diagnosis> diagnose(const Evidence& evidence, std::span<const Finder> finders) {
  std::vector<Scored> found;
  for (const Finder& finder : finders) {
    for (Hypothesis& hypothesis : ask(finder, evidence)) {
      const double bits = description_length(evidence, hypothesis);
      found.push_back({std::move(hypothesis), bits});
    }
  }
  if (found.empty()) {
    return std::nullopt;
  }
  std::sort(found.begin(), found.end(), shorter);
  Hypothesis best = cause_of(evidence, found);
  Diagnosis diagnosis{best.signature, std::move(best.sentence), std::move(best.named), {}};
  const auto other = std::find_if(found.begin(), found.end(), [&](const Scored& each) {
    return each.hypothesis.signature != diagnosis.signature &&
           each.hypothesis.signature != found.front().hypothesis.signature;
  });
  if (other != found.end() && other->bits <= found.front().bits + kNear) {
    diagnosis.runner_up =
        Alternative{other->hypothesis.signature, std::move(other->hypothesis.sentence)};
  }
  return diagnosis;
}

}  // namespace ttrace
