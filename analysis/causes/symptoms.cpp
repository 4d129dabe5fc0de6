// Findings whose symptom is the cause already, or names whom to ask: NaN and Inf, flipped choices
// of experts, random numbers, recomputed values, inputs that differ. And what their checks claim.
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

struct NonFinite {
  std::int64_t infinite = 0;
  std::int64_t nan = 0;
  std::int64_t either = 0;  // of these it is not known which
  std::int64_t elements = 0;
  std::vector<int> ranks;

  [[nodiscard]] std::string text() const {
    return either > 0 ? fmt::format("{} Inf or NaN", either + infinite + nan)
                      : fmt::format("{} Inf and {} NaN", infinite, nan);
  }
};

NonFinite non_finite(const std::vector<Shard>& shards) {
  NonFinite found;
  for (const Shard& shard : shards) {
    found.elements += element_count(shard.record->shape);
    if (!has_elements(shard)) {
      const auto count = static_cast<std::int64_t>(shard.record->nonfinite);
      found.either += count;
      if (count > 0) {
        found.ranks.push_back(shard.rank);
      }
      continue;
    }
    const Values values = local_values(shard);
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

// Largest finite magnitude of the reference's tensor next to the largest number of F16.
std::string range_text(const Match& match) {
  double largest = 0.0;
  for (const Shard& shard : match.reference) {
    largest = std::max(largest, shard.record->max_abs);
  }
  const std::string text = "; the reference's largest magnitude is " + short_number(largest);
  const ElementType type = match.candidate.front().record->type;
  return type == ElementType::kF16
             ? text + ", the largest number of f16 " + short_number(format_of(type).largest)
             : text;
}

bool is_first_step(const Evidence& evidence) {
  return std::none_of(
      evidence.matches().begin(), evidence.matches().end(), [&](const Match& match) {
        return match.id.step < evidence.finding().id.step;
      });
}

// What only names whom to ask leaves the numbers as they are.
Hypotheses named_by_symptom(Signature signature,
                            std::string sentence,
                            std::vector<int> ranks = {}) {
  return {{.signature = signature,
           .sentence = std::move(sentence),
           .named = {.ranks = std::move(ranks)},
           .error = 1.0,
           .residual = 1.0}};
}

Hypotheses non_finite(const Evidence& evidence) {
  if (evidence.match().candidate.empty()) {
    return {};
  }
  const NonFinite candidate = non_finite(evidence.match().candidate);
  const NonFinite reference = non_finite(evidence.match().reference);
  const std::string counts =
      fmt::format("the candidate has {} of {} elements on {}, the reference has {}",
                  candidate.text(),
                  candidate.elements,
                  ranks_text(candidate.ranks),
                  reference.text());
  if (candidate.ranks.empty()) {
    return named_by_symptom(
        Signature::kNonFinite,
        counts + ": the candidate replaced or masked what overflows in the reference");
  }
  return named_by_symptom(
      Signature::kNonFinite,
      counts +
          (candidate.nan + candidate.either == 0
               ? ": an overflow"
               : ": an overflow, or an operation that has no result, such as 0 / 0") +
          range_text(evidence.match()),
      candidate.ranks);
}

Hypotheses routing_flip(const Evidence& evidence) {
  const Check* const routing = evidence.finding().find(Question::kRouting);
  if (routing == nullptr) {
    return {};
  }
  const std::string text =
      fmt::format("{} ({} of all choices differ)", routing->sentence, routing->term(Term::kFlips));
  return named_by_symptom(Signature::kRoutingFlip,
                          text +
                              ": the router's weight, its input, its bias or its choice of the "
                              "largest scores differs");
}

Hypotheses recompute(const Evidence& evidence) {
  std::string state =
      "some state that the first forward changed is not restored: random numbers, autocast, "
      "buffers written in place";
  const Check* const check = evidence.finding().find(Question::kRecompute);
  if (check != nullptr && check->original) {
    state = fmt::format(
        "the first one began with {}; check what the second one is given, and what writes to that "
        "in place between the two",
        to_string(*check->original));
  } else if (evidence.finding().id.kind == Kind::kDraw) {
    state =
        "it was recomputed with other random numbers, because the state of the random numbers is "
        "not "
        "restored (checkpoint with preserve_rng_state=False, a generator that nobody saves)";
  } else if (evidence.finding().id.kind == Kind::kScale ||
             evidence.finding().id.kind == Kind::kAmaxHistory) {
    state = "the recomputed forward quantises with scales of its own instead of the first ones";
  } else if (evidence.with_kind(Kind::kScale) != nullptr) {
    state += ", scales of FP8";
  }
  return named_by_symptom(
      Signature::kRecompute,
      fmt::format("the forward that ran again in backward does not repeat the first one on {}: {}",
                  ranks_text(evidence.finding().ranks()),
                  state),
      evidence.finding().ranks());
}

Hypotheses other_random_numbers(const Evidence& evidence) {
  const std::vector<int> ranks = evidence.finding().ranks();
  return named_by_symptom(
      Signature::kRandomNumbers,
      fmt::format(
          "other random numbers on {}, which hold the same tensor: they need one seed there, "
          "and the same draws before",
          ranks_text(ranks)),
      ranks);
}

Hypotheses same_random_numbers(const Evidence& evidence) {
  const std::vector<int> ranks = evidence.finding().ranks();
  return named_by_symptom(
      Signature::kRandomNumbers,
      fmt::format(
          "{} draw the same mask, or noise, although they hold different parts of the tensor: "
          "they need seeds of their own there",
          ranks_text(ranks)),
      ranks);
}

Hypotheses no_random_numbers(const Evidence& evidence) {
  const bool in_candidate = evidence.match().candidate.empty();
  return named_by_symptom(
      Signature::kRandomNumbers,
      fmt::format("the {} draws no random numbers here, but the {} does: check that both train "
                  "(train(), not eval()) with the same probabilities",
                  in_candidate ? "candidate" : "reference",
                  in_candidate ? "reference" : "candidate"));
}

Hypotheses source(const Evidence& evidence, const Sides& sides) {
  const TensorId& id = evidence.finding().id;
  const bool data = evidence.finding().is_given;
  const bool start =
      id.kind == Kind::kStateBefore || (id.kind == Kind::kParam && is_first_step(evidence));
  if (!data && !start) {
    return {};
  }
  const auto& comparison = evidence.finding().comparison;
  return named_by_symptom(
      Signature::kSource,
      fmt::format("the programs do not {}; {} of {} elements differ, and everything that follows "
                  "inherits the difference",
                  data ? fmt::format("read the same {}: check the order of samples, the cut of the "
                                     "batch, the tokeniser",
                                     id.kind == Kind::kData ? id.path : "input")
                  : id.step == 0
                      ? fmt::format("start from the same {}: check the initialisation, and how a "
                                    "checkpoint was cut into shards",
                                    id.path)
                      : fmt::format("begin this step with the same {}: check what a checkpoint "
                                    "stores and the program loads, and what the steps before do",
                                    id.path),
                  comparison && !comparison->is_estimate ? comparison->different : 0,
                  sides.size()));
}

}  // namespace

Hypotheses find_claimed(const Evidence& evidence) {
  const Hypothesis* const claim = evidence.finding().claim();
  return claim == nullptr ? Hypotheses() : Hypotheses{*claim};
}

Hypotheses find_symptom(const Evidence& evidence) {
  const TensorVerdict& finding = evidence.finding();
  if (finding.symptom() == Symptom::kMissing && finding.id.kind == Kind::kDraw) {
    return no_random_numbers(evidence);
  }
  switch (finding.symptom()) {
    case Symptom::kNonFinite:
      return non_finite(evidence);
    case Symptom::kIllegalFlip:
      return routing_flip(evidence);
    case Symptom::kRecompute:
      return recompute(evidence);
    case Symptom::kReplicasDisagree:
      return finding.id.recompute             ? recompute(evidence)
             : finding.id.kind == Kind::kDraw ? other_random_numbers(evidence)
                                              : Hypotheses();
    case Symptom::kSameDraws:
      return same_random_numbers(evidence);
    default:
      return evidence.sides() == nullptr ? Hypotheses() : source(evidence, *evidence.sides());
  }
}

}  // namespace ttrace
