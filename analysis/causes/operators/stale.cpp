#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

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
  return kind == Kind::kParam || kind == Kind::kParamNext || kind == Kind::kMaster;
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

// Another micro-batch's value of the reference, on whatever ranks the candidate computed it.
std::optional<Diagnosis> find_other_microbatch(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  TensorId other = evidence.finding().id;
  if (sides == nullptr || other.microbatch == kNoMicrobatch || is_constant(sides->candidate)) {
    return std::nullopt;
  }
  const double within = evidence.bound();
  for (other.microbatch = 0; other.microbatch < evidence.microbatches(); ++other.microbatch) {
    const Match* match = evidence.find(other);
    const auto value =
        match == nullptr || match == &evidence.match() ? std::nullopt : evidence.reference(*match);
    if (value && distance(sides->candidate, *value) <= within) {
      return Diagnosis{Signature::kStale,
                       "it holds what the reference has for micro-batch " +
                           std::to_string(other.microbatch) + " (difference " +
                           short_number(distance(sides->candidate, *value)) + ", bound " +
                           short_number(within) + ")"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> find_stale(const Evidence& evidence) {
  for (const auto& [id, name] : earlier_values(evidence)) {
    const Match& then = *evidence.find(id);
    if (!reference_moves(evidence.match(), then)) {
      continue;
    }
    if (const std::vector<int> ranks = stale_ranks(evidence.match(), then); !ranks.empty()) {
      return Diagnosis{Signature::kStale,
                       "on " + ranks_text(ranks) + " it equals " + name + ", " + to_string(id) +
                           ", in every bit; in the reference the two differ"};
    }
    // Not of its sides: of copies that differ some may be within the bound.
    const auto reference = is_parameter(evidence.finding().id.kind)
                               ? evidence.reference(evidence.match())
                               : std::nullopt;
    if (!reference) {
      continue;
    }
    if (const auto ranks = partly_stale_ranks(evidence.match(), then, *reference, evidence.bound());
        !ranks.empty()) {
      return Diagnosis{Signature::kStale,
                       "on " + ranks_text(ranks) +
                           " nearly all of its error lies in elements that " + "equal " + name +
                           ", " + to_string(id) + ", in every bit"};
    }
  }
  return find_other_microbatch(evidence);
}

}  // namespace ttrace
