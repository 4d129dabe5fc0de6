#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ttrace {
namespace {

const Shard* shard_of(std::span<const Shard> shards, int rank) {
  const auto found = std::find_if(
      shards.begin(), shards.end(), [rank](const Shard& shard) { return shard.rank == rank; });
  return found == shards.end() ? nullptr : &*found;
}

bool same_bytes(const Shard& left, const Shard& right) {
  return left.record->type == right.record->type && left.record->shape == right.record->shape &&
         std::ranges::equal(left.bytes, right.bytes);
}

// One number, or one number everywhere: the scale of an operand whose largest element's token is in
// every micro-batch, a mask of ones. It recurs by chance.
bool is_constant(const Values& values) {
  return std::ranges::adjacent_find(values.data, std::ranges::not_equal_to{}) == values.data.end();
}

bool is_parameter(Kind kind) {
  return family_of(kind) == KindFamily::kParameter;
}

// A master copy beside the parameter it began as: equal values in different types.
bool same_values(const Shard& left, const Shard& right) {
  return left.record->shape == right.record->shape &&
         local_values(left).data == local_values(right).data;
}

struct Earlier {
  TensorId id;
  std::string name;  // "its value before the step"
};

// What the tensor may have failed to move on from.
std::vector<Earlier> earlier_values(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  std::vector<Earlier> earlier;
  const auto add = [&](TensorId other, const std::string& name) {
    if (other != id && evidence.find(other) != nullptr) {
      earlier.push_back({std::move(other), name});
    }
  };
  TensorId other = id;
  if (id.kind == Kind::kParamNext || id.kind == Kind::kMaster) {
    other.kind = Kind::kParam;
    add(other, "its value before the step");
    return earlier;
  }
  other.step = id.step - 1;
  add(other, "its value one step earlier");
  if (id.microbatch != kNoMicrobatch) {
    other = id;
    for (other.microbatch = 0; other.microbatch < evidence.microbatches(); ++other.microbatch) {
      add(other, "its value for micro-batch " + std::to_string(other.microbatch));
    }
  }
  return earlier;
}

std::vector<std::int64_t> microbatch_of(const TensorId& id) {
  return id.microbatch == kNoMicrobatch ? std::vector<std::int64_t>() : std::vector{id.microbatch};
}

// Whether the reference has two different values there, so that equal ones mean something.
bool reference_moves(const Match& now, const Match& then) {
  const std::vector<Shard>& before = then.reference.empty() ? then.candidate : then.reference;
  return !now.reference.empty() && !before.empty() &&
         !same_values(now.reference.front(), before.front());
}

std::vector<int> stale_ranks(const Match& now, const Match& then) {
  std::vector<int> ranks;
  for (const Shard& shard : now.candidate) {
    const Shard* old = shard_of(then.candidate, shard.rank);
    if (old != nullptr && shard.record->norm > 0.0 &&
        (same_bytes(shard, *old) ||
         (shard.record->type != old->record->type && same_values(shard, *old))) &&
        (is_parameter(now.id.kind) || !is_constant(local_values(shard)))) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

// Ranks on which nearly all of a parameter's error lies in elements that kept their old values: a
// gather of which only this rank's own part arrived.
// `rounding`: what round-off alone leaves.
std::vector<int> partly_stale_ranks(const Match& now,
                                    const Match& then,
                                    const Values& reference,
                                    double rounding) {
  constexpr double kNearlyAll = 0.91;  // of the error's energy
  std::vector<int> ranks;
  for (const Shard& shard : now.candidate) {
    const Shard* old = shard_of(then.candidate, shard.rank);
    const Placement& placement = shard.record->placement;
    if (old == nullptr || old->record->shape != shard.record->shape ||
        placement.partial_count != 1 || placement.dims.size() != reference.shape.size()) {
      continue;
    }
    const Values held = local_values(shard);
    const Values before = local_values(*old);
    const std::vector<double> right = values_at(reference, shard);
    double error = 0.0;
    double kept = 0.0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      const double squared = (held.data[i] - right[i]) * (held.data[i] - right[i]);
      error += squared;
      kept += held.data[i] == before.data[i] ? squared : 0.0;
    }
    const bool rest_is_rounding = kept >= 0.5 * error && error - kept <= rounding * rounding;
    if (kept > 0.0 && (kept >= kNearlyAll * error || rest_is_rounding)) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

}  // namespace

// A record that equals, in every bit, what the same rank recorded earlier.
std::optional<Hypothesis> find_stale(const Evidence& evidence) {
  const auto earlier = earlier_values(evidence);
  for (const auto& [id, name] : earlier) {
    const Match& then = *evidence.find(id);
    const auto ranks = reference_moves(evidence.match(), then) ? stale_ranks(evidence.match(), then)
                                                               : std::vector<int>();
    if (!ranks.empty()) {
      return Hypothesis{
          .signature = Signature::kStale,
          .sentence = fmt::format("on {} the tensor equals {}, {}, in every bit; in the reference "
                                  "the two differ",
                                  ranks_text(ranks),
                                  name,
                                  to_string(id)),
          .named = {.ranks = ranks, .microbatches = microbatch_of(id)},
          .bits = bits_of_choice(static_cast<double>(earlier.size()))};
    }
  }
  return std::nullopt;
}

// A parameter of which some elements kept their old values. The sides do not matter: of copies that
// differ some may be within the bound.
std::optional<Hypothesis> find_kept_elements(const Evidence& evidence) {
  const auto reference = is_parameter(evidence.finding().id.kind)
                             ? evidence.reference(evidence.match())
                             : std::nullopt;
  for (const auto& [id, name] : earlier_values(evidence)) {
    const Match& then = *evidence.find(id);
    const auto ranks =
        reference && reference_moves(evidence.match(), then)
            ? partly_stale_ranks(evidence.match(), then, *reference, evidence.bound())
            : std::vector<int>();
    if (!ranks.empty()) {
      return Hypothesis{
          .signature = Signature::kStale,
          .sentence = fmt::format("on {} nearly all of its error lies in elements that equal {}, "
                                  "{}, in every bit",
                                  ranks_text(ranks),
                                  name,
                                  to_string(id)),
          .named = {.ranks = ranks},
          .coefficients = 2.0};
    }
  }
  return std::nullopt;
}

// Another micro-batch's value of the reference, on whatever ranks the candidate computed it.
std::optional<Hypothesis> find_other_microbatch(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  TensorId other = evidence.finding().id;
  if (sides == nullptr || other.microbatch == kNoMicrobatch || is_constant(sides->candidate)) {
    return std::nullopt;
  }
  const std::int64_t count = evidence.microbatches();
  for (other.microbatch = 0; other.microbatch < count; ++other.microbatch) {
    const auto value =
        other == evidence.finding().id ? std::nullopt : evidence.value(other, WhichRun::kReference);
    const double rest = value ? distance(sides->candidate, *value) : 0.0;
    if (value && rest <= evidence.bound()) {
      return Hypothesis{
          .signature = Signature::kStale,
          .sentence = fmt::format(
              "it holds what the reference has for micro-batch {} (difference {}, bound {})",
              other.microbatch,
              short_number(rest),
              short_number(evidence.bound())),
          .named = {.microbatches = {other.microbatch}},
          .error = sides->error,
          .residual = rest,
          // One bit more than find_stale(): the values are equal, but not in every bit.
          .bits = 1.0 + bits_of_choice(static_cast<double>(count))};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
