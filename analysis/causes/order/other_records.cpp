// Values that belong elsewhere: a record of the same rank from before, another micro-batch's or
// layer's value of the reference, another rank's part, rows of another expert.
#include "analysis/align/module_path.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/index_set.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

bool same_bytes(const Shard& left, const Shard& right) {
  return left.record->digest == right.record->digest && left.record->type == right.record->type &&
         left.record->shape == right.record->shape && std::ranges::equal(left.bytes, right.bytes);
}

// A master copy next to the parameter it began as: equal values in different types.
bool same_values(const Shard& left, const Shard& right) {
  return left.record->shape == right.record->shape && has_elements(left) && has_elements(right) &&
         local_values(left).data == local_values(right).data;
}

// One number, or one number everywhere: zeros, a mask of ones, the scale of an operand whose
// largest element's token is in every micro-batch. It recurs by chance.
bool is_constant(const Values& values) {
  return std::ranges::adjacent_find(values.data, std::ranges::not_equal_to{}) == values.data.end();
}

bool is_parameter(Kind kind) {
  return family_of(kind) == KindFamily::kParameter;
}

// What the tensor may have failed to move on from, and what that is called.
std::vector<std::pair<const Match*, std::string>> earlier_values(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  std::vector<std::pair<const Match*, std::string>> earlier;
  const auto add = [&](const TensorId& other, std::string name) {
    if (const Match* match = evidence.find(other); other != id && match != nullptr) {
      earlier.emplace_back(match, std::move(name));
    }
  };
  if (is_updated_parameter(id.kind)) {
    add(as_kind(id, Kind::kParam), "its value before the step");
    return earlier;
  }
  TensorId other = id;
  other.step = id.step - 1;
  add(other, "its value one step earlier");
  other = id;
  for (std::int64_t i = 0; id.microbatch != kNoMicrobatch && i < evidence.microbatches(); ++i) {
    other.microbatch = i;
    add(other, "its value for micro-batch " + std::to_string(i));
  }
  return earlier;
}

// What a rank holds of a tensor.
struct Part {
  const Match* match = nullptr;
  const Shard* shard = nullptr;
};

// What was sent as the message that a rank received.
const Match* sent_as(const Evidence& evidence, const Match& received) {
  const Match* const sent = evidence.find(as_kind(received.id, Kind::kSent));
  return sent == nullptr || sent->candidate.empty() ? nullptr : sent;
}

// What belongs where a shard lies, in its type.
std::vector<double> part_of(const Values& whole, const Shard& shard) {
  const bool is_placed = shard.record->placement.dims.size() == whole.shape.size();
  return rounded(is_placed ? values_at(whole.data, shard) : whole.data, shard.record->type);
}

// Whether what belongs at a part differs from what belonged at its earlier record, so that equal
// values mean something: in the reference, or of a message in what was sent. Padding never moves,
// some rows may stay while the others move, and a step may be too small for BF16, which a forced
// pass in F32 is not. What the reference did not record before is taken from the rank itself.
bool truth_moves(const Evidence& evidence, const Part& now, const Part& then) {
  if (now.match->id.kind == Kind::kReceived) {
    const Match* const sent = sent_as(evidence, *now.match);
    const Match* const before = sent_as(evidence, *then.match);
    return sent != nullptr && before != nullptr &&
           !same_values(sent->candidate.front(), before->candidate.front());
  }
  const auto value = Evidence::reference(now.match);
  const auto before = Evidence::reference(then.match);
  return value && part_of(*value, *now.shard) != (before && before->shape == value->shape
                                                      ? part_of(*before, *now.shard)
                                                      : local_values(*then.shard).data);
}

bool is_stale(const Shard& shard, const Shard& old, Kind kind) {
  return (same_bytes(shard, old) ||
          (shard.record->type != old.record->type && same_values(shard, old))) &&
         (is_parameter(kind) || (has_elements(shard) && !is_constant(local_values(shard))));
}

struct Left {
  double error = 0.0;  // norms: of the part's error
  double rest = 0.0;   // of it where elements did not keep their old values
};

// Nothing unless nearly all of a parameter's error lies in elements that kept their old values: a
// gather of which only this rank's own part arrived. `rounding`: what round-off alone leaves.
std::optional<Left> partly_stale(const RankPart& part, const Shard& old, double rounding) {
  constexpr double kNearlyAll = 0.91;  // of the error's energy
  if (!has_elements(old)) {
    return std::nullopt;
  }
  const Values before = local_values(old);
  const std::vector<double> d = part.sides.difference();
  if (before.shape != part.sides.shape()) {
    return std::nullopt;
  }
  const std::vector<double> right =
      rounded(part.sides.reference.data, part.shard->record->type);  // as part_of()
  double error = 0.0;
  double kept = 0.0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    const double held = part.sides.candidate.data[i];
    error += d[i] * d[i];
    kept += held == before.data[i] && held != right[i] ? d[i] * d[i] : 0.0;
  }
  const bool rest_is_rounding = kept >= 0.5 * error && error - kept <= rounding * rounding;
  return kept > 0.0 && (kept >= kNearlyAll * error || rest_is_rounding)
             ? std::optional(Left{std::sqrt(error), std::sqrt(error - kept)})
             : std::nullopt;
}

// The rank whose part there is, number by number, that of `reference`.
std::optional<int> holder(const Match& match, const Values& reference) {
  const std::vector<RankPart> parts = rank_parts(match.candidate, reference);
  const auto found =
      std::ranges::find(parts, 0.0, [](const RankPart& part) { return part.sides.error; });
  return found == parts.end() ? std::nullopt : std::optional(found->rank());
}

// A parameter that the candidate does not have, with all of its layer: another layer of the
// candidate may hold these values under its own number. All layers' norms begin alike, so that any
// parameter of the layer may tell.
Hypotheses under_other_number(const Evidence& evidence, const NumberedPath& path) {
  const std::string prefix = path.before + std::to_string(path.number) + ".";
  for (const Match& missing : evidence.records(Kind::kParam)) {
    const bool is_of_layer = missing.id.path.starts_with(prefix) && missing.candidate.empty();
    const auto value = is_of_layer ? evidence.reference(&missing) : std::nullopt;
    for (const Match& other : evidence.matches()) {
      if (!value || !evidence.vocabulary().differ_in_number(Role::kLayers, other.id, missing.id)) {
        continue;
      }
      const auto own = evidence.reference(&other);
      const auto rank = holder(other, *value);
      if (rank && own && own->data != value->data) {
        return {{.signature = Signature::kWrongLayer,
                 .sentence = fmt::format("no rank has layer {}; rank {} holds its values under the "
                                         "name {}: some stages number their layers from another "
                                         "offset",
                                         path.number,
                                         *rank,
                                         to_string(other.id)),
                 .named = {.ranks = {*rank}}}};
      }
    }
  }
  return {};
}

// Layers' numbers that ranks at several places of an axis claim, where other layers have one place
// only: two stages number their layers alike.
Hypotheses claimed_twice(const Evidence& evidence, const NumberedPath& missing) {
  for (const std::string& axis : evidence.axes()) {
    std::map<std::int64_t, std::set<int>> places;  // by layer
    for (const Match& match : evidence.records(Kind::kParam)) {
      const auto path = evidence.vocabulary().numbered(Role::kLayers, match.id.path);
      if (!path || path->before != missing.before) {
        continue;
      }
      for (const Shard& shard : match.candidate) {
        places[path->number].insert(evidence.layout(shard.rank).coordinate(axis));
      }
    }
    const auto is_twice = [](const auto& layer) { return layer.second.size() > 1; };
    const auto twice = std::ranges::find_if(places, is_twice);
    if (twice != places.end() && !std::ranges::all_of(places, is_twice)) {
      return {{.signature = Signature::kWrongLayer,
               .sentence = fmt::format("no rank has layer {}, and layer {} is claimed by ranks at "
                                       "{} places of {}: some stages number their layers from "
                                       "another offset",
                                       missing.number,
                                       twice->first,
                                       twice->second.size(),
                                       axis),
               .named = {.axes = {axis}},
               .error = 1.0,
               .residual = 1.0}};  // where the layer's numbers are, it does not say
    }
  }
  return {};
}

// The rows of the logical tensor that shards have.
IndexSet rows_of(std::span<const Shard> shards) {
  std::vector<Interval> rows;
  for (const Shard& shard : shards) {
    const std::vector<DimPlacement>& dims = shard.record->placement.dims;
    for (const Segment& segment : dims.empty() ? std::vector<Segment>() : dims[0].segments) {
      rows.push_back({segment.logical, segment.logical + segment.extent});
    }
  }
  return normalised(std::move(rows));
}

}  // namespace

// In every bit, or, of a parameter, in nearly all elements that are wrong. The sides do not matter:
// of copies that differ some may be within the bound.
Hypotheses find_stale(const Evidence& evidence) {
  const Match& now = evidence.match();
  const Kind kind = now.id.kind;
  const auto reference = is_parameter(kind) ? evidence.reference(&now) : std::nullopt;
  const auto parts = reference ? rank_parts(now.candidate, *reference) : std::vector<RankPart>();
  const auto earlier = earlier_values(evidence);
  Hypotheses found;
  for (const auto& [then, name] : earlier) {
    std::vector<int> ranks;
    std::vector<int> partly;
    Left most;  // of the ranks that kept a part
    for (std::size_t i = 0; i < now.candidate.size(); ++i) {
      const Shard& shard = now.candidate[i];
      const auto old = std::ranges::find(then->candidate, shard.rank, &Shard::rank);
      if (old == then->candidate.end()) {
        continue;
      }
      const bool whole = is_stale(shard, *old, kind);
      const auto left =
          parts.empty() ? std::nullopt : partly_stale(parts[i], *old, evidence.bound());
      if (!(whole || left) || !truth_moves(evidence, {&now, &shard}, {then, &*old})) {
        continue;
      }
      if (whole) {
        ranks.push_back(shard.rank);
      }
      if (left) {
        partly.push_back(shard.rank);
        most = left->rest >= most.rest ? *left : most;
      }
    }
    const std::string what = name + ", " + to_string(then->id);
    if (!ranks.empty()) {
      found.push_back(
          {.signature = Signature::kStale,
           .sentence = fmt::format("on {} the tensor equals {}, in every bit; {}",
                                   ranks_text(ranks),
                                   what,
                                   kind == Kind::kReceived ? "what was sent differs"
                                                           : "in the reference the two differ"),
           .named = {.ranks = ranks}});
      if (then->id.microbatch != kNoMicrobatch) {
        found.back().named.microbatches = {then->id.microbatch};
      }
    } else if (!partly.empty()) {
      found.push_back({.signature = Signature::kStale,
                       .sentence = fmt::format("on {} nearly all of its error lies in elements "
                                               "that equal {}, in every bit",
                                               ranks_text(partly),
                                               what),
                       .named = {.ranks = partly},
                       .error = most.error,
                       .residual = most.rest,
                       .coefficients = 2.0});  // where what was kept begins and ends
    }
  }
  return chosen_of(earlier.size(), std::move(found));
}

// The reference's value of another micro-batch or layer, on whatever ranks the candidate computed
// it.
Hypotheses find_other_record(const Evidence& evidence, const Sides& sides) {
  const TensorId& id = evidence.finding().id;
  const auto layer = evidence.vocabulary().numbered(Role::kLayers, id.path);
  Hypotheses microbatches;
  Hypotheses layers;
  std::size_t tried = 0;
  for (const Match& match : evidence.matches()) {
    TensorId same = match.id;
    same.microbatch = id.microbatch;
    const bool other_microbatch = same == id && match.id != id && !is_constant(sides.candidate);
    const bool other_layer = evidence.vocabulary().differ_in_number(Role::kLayers, match.id, id);
    tried += other_layer ? 1 : 0;
    const auto value = other_microbatch || other_layer ? evidence.reference(&match) : std::nullopt;
    const double rest = value ? distance(sides.candidate, *value) : 0.0;
    if (value && other_microbatch && rest <= evidence.bound()) {
      microbatches.push_back(
          about(sides,
                Signature::kStale,
                rest,
                fmt::format("it holds what the reference has for micro-batch {} (difference {}, "
                            "bound {})",
                            match.id.microbatch,
                            short_number(rest),
                            short_number(evidence.bound()))));
      microbatches.back().named.microbatches = {match.id.microbatch};
    }
    if (value && other_layer && evidence.explains(rest)) {
      layers.push_back(
          about(sides,
                Signature::kWrongLayer,
                rest,
                fmt::format("layer {} holds what layer {} has in the reference (difference {}, "
                            "from its own {}): stages take the layers in another order",
                            layer->number,
                            evidence.vocabulary().numbered(Role::kLayers, match.id.path)->number,
                            short_number(rest),
                            short_number(sides.error))));
    }
  }
  Hypotheses found =
      chosen_of(static_cast<std::size_t>(evidence.microbatches()), std::move(microbatches));
  append(found, chosen_of(tried, std::move(layers)));
  return found;
}

Hypotheses find_layer_number(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const auto path = evidence.vocabulary().numbered(Role::kLayers, id.path);
  if (!path || evidence.finding().status() != Status::kMissingInCandidate) {
    return {};
  }
  Hypotheses found = id.kind == Kind::kParam ? under_other_number(evidence, *path) : Hypotheses();
  append(found, claimed_twice(evidence, *path));
  return found;
}

// What the part is that ranks hold is explained where one of them should hold it.
Hypotheses find_duplicated_part(const Evidence& evidence, const Sides& sides) {
  const std::vector<RankPart> parts = rank_parts(evidence.match().candidate, sides.reference);
  Hypotheses found;
  std::set<int> grouped;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (grouped.contains(parts[i].rank())) {
      continue;
    }
    std::vector<int> ranks = {parts[i].rank()};
    double nearest = parts[i].sides.error;
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      if (parts[i].shard->record->placement != parts[j].shard->record->placement &&
          same_bytes(*parts[i].shard, *parts[j].shard) && !is_constant(parts[i].sides.candidate) &&
          parts[i].sides.reference.data != parts[j].sides.reference.data) {
        ranks.push_back(parts[j].rank());
        nearest = std::min(nearest, parts[j].sides.error);
      }
    }
    if (ranks.size() > 1) {
      found.push_back(
          about(sides,
                Signature::kDuplicatedBlock,
                std::min(nearest, sides.error),
                fmt::format("{} hold different parts of it, equal in every bit; in the reference "
                            "these parts differ: one rank's data, seed or shard is on all of them",
                            ranks_text(ranks))));
      found.back().named.ranks = ranks;
      found.back().bits = bits_of_choice(static_cast<double>(ranks.size()));
      grouped.insert(ranks.begin(), ranks.end());
    }
  }
  return found;
}

Hypotheses find_misrouted_rows(const Evidence& evidence) {
  const Match& match = evidence.match();
  const Symptom symptom = evidence.finding().symptom();
  const bool of_rows = symptom == Symptom::kRanksContradict || symptom == Symptom::kRowsDiffer ||
                       symptom == Symptom::kOverlap;
  if (!of_rows || match.reference.empty()) {
    return {};
  }
  const IndexSet right = rows_of(match.reference);
  Hypotheses found;
  for (const Shard& shard : match.candidate) {
    const IndexSet strange = difference(rows_of({&shard, 1}), right);
    for (const Match& other : evidence.matches()) {
      if (!evidence.vocabulary().differ_in_number(Role::kExperts, match.id, other.id)) {
        continue;
      }
      const std::int64_t theirs = size_of(intersection(strange, rows_of(other.reference)));
      if (theirs > 0) {
        found.push_back(
            {.signature = Signature::kWrongOrder,
             .sentence = fmt::format("rank {} has rows {} here, which the reference does not; {} "
                                     "of them are those of {}: tokens were given to experts by "
                                     "counts that belong to other rows",
                                     shard.rank,
                                     ranges_text(strange),
                                     theirs,
                                     to_string(other.id)),
             .named = {.ranks = {shard.rank}},
             .error = std::sqrt(static_cast<double>(size_of(strange))),
             .residual = std::sqrt(static_cast<double>(size_of(strange) - theirs))});
      }
    }
  }
  return found;
}

}  // namespace ttrace
