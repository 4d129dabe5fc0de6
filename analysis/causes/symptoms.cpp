// Findings whose symptom is the cause already, or names whom to ask: NaN and Inf, flipped choices
// of experts, recomputed values, inputs that differ.
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

struct NonFinite {
  std::int64_t infinite = 0;
  std::int64_t nan = 0;
  std::int64_t elements = 0;
  std::vector<int> ranks;
};

NonFinite non_finite(const std::vector<Shard>& shards) {
  NonFinite found;
  for (const Shard& shard : shards) {
    const Values values = local_values(shard);
    found.elements += std::ssize(values.data);
    const auto infinite = std::count_if(
        values.data.begin(), values.data.end(), [](double value) { return std::isinf(value); });
    const auto nan = std::count_if(
        values.data.begin(), values.data.end(), [](double value) { return std::isnan(value); });
    found.infinite += infinite;
    found.nan += nan;
    if (infinite + nan > 0) {
      found.ranks.push_back(shard.rank);
    }
  }
  return found;
}

// Largest finite magnitude of the reference's tensor beside the largest number of F16.
std::string range_text(const Match& match) {
  constexpr double kLargestF16 = 65504.0;
  double largest = 0.0;
  for (const Shard& shard : match.reference) {
    largest = std::max(largest, shard.record->max_abs);
  }
  const std::string text = "; the reference's largest magnitude is " + short_number(largest);
  return match.candidate.front().record->type == ElementType::kF16
             ? text + ", the largest number of f16 " + short_number(kLargestF16)
             : text;
}

const Match* with_kind(const Evidence& evidence, Kind kind) {
  TensorId id = evidence.finding().id;
  id.kind = kind;
  return evidence.find(id);
}

bool is_first_step(const Evidence& evidence) {
  return std::none_of(
      evidence.matches().begin(), evidence.matches().end(), [&](const Match& match) {
        return match.id.step < evidence.finding().id.step;
      });
}

}  // namespace

std::optional<Diagnosis> find_non_finite(const Evidence& evidence) {
  if (evidence.finding().symptom() != Symptom::kNonFinite || evidence.match().candidate.empty()) {
    return std::nullopt;
  }
  const NonFinite candidate = non_finite(evidence.match().candidate);
  const NonFinite reference = non_finite(evidence.match().reference);
  const std::string counts =
      std::to_string(candidate.infinite) + " Inf and " + std::to_string(candidate.nan) +
      " NaN of " + std::to_string(candidate.elements) + " elements on " +
      ranks_text(candidate.ranks) + ", the reference has " + std::to_string(reference.infinite) +
      " and " + std::to_string(reference.nan);
  if (candidate.ranks.empty()) {
    return Diagnosis{Signature::kNonFinite,
                     counts + ": the candidate replaced or masked what overflows in the reference"};
  }
  return Diagnosis{Signature::kNonFinite,
                   counts +
                       (candidate.nan == 0 ? ": an overflow"
                                           : ": an overflow, or an operation that "
                                             "has no result, such as 0 / 0") +
                       range_text(evidence.match())};
}

std::optional<Diagnosis> find_routing_flip(const Evidence& evidence) {
  const Check* const routing = evidence.finding().find(Question::kRouting);
  if (evidence.finding().symptom() != Symptom::kIllegalFlip || routing == nullptr) {
    return std::nullopt;
  }
  const std::string text = routing->sentence + " (" +
                           std::to_string(static_cast<std::int64_t>(routing->term("flips"))) +
                           " of all choices differ)";
  return Diagnosis{Signature::kRoutingFlip,
                   text +
                       ": the router's weight, input, bias or its choice of the largest scores "
                       "differs, not its round-off"};
}

std::optional<Diagnosis> find_recompute(const Evidence& evidence) {
  const bool copies = evidence.finding().symptom() == Symptom::kReplicasDisagree;
  if (evidence.finding().symptom() != Symptom::kRecompute &&
      !(copies && evidence.finding().id.recompute)) {
    return std::nullopt;
  }
  std::string state =
      "state that the first forward changed or that is not restored: random "
      "numbers, autocast, buffers written in place";
  if (evidence.finding().id.kind == Kind::kMask) {
    state = "the state of the random numbers is not restored";
  } else if (evidence.finding().id.kind == Kind::kScale ||
             evidence.finding().id.kind == Kind::kAmaxHistory) {
    state = "the recomputed forward quantises with scales of its own instead of the first ones";
  } else if (with_kind(evidence, Kind::kScale) != nullptr) {
    state += ", scales of FP8";
  }
  return Diagnosis{Signature::kRecompute,
                   "the forward that ran again in backward does not repeat the first one on " +
                       ranks_text(evidence.finding().ranks()) + ": " + state};
}

std::optional<Diagnosis> find_source(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const bool data = id.kind == Kind::kData;
  const bool start = id.kind == Kind::kParam && is_first_step(evidence);
  if ((!data && !start) || evidence.sides() == nullptr) {
    return std::nullopt;
  }
  return Diagnosis{
      Signature::kSource,
      (data ? "the programs do not read the same " + id.path +
                  ": order of samples, cut of the batch or tokeniser"
            : "the programs do not start from the same " + id.path +
                  ": initialisation, or how a checkpoint was cut into shards") +
          "; " +
          std::to_string(evidence.finding().comparison ? evidence.finding().comparison->different
                                                       : 0) +
          " of " + std::to_string(evidence.sides()->reference.data.size()) +
          " elements differ; everything that follows inherits it"};
}

}  // namespace ttrace
