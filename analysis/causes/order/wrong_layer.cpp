#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// The rank whose part there is, number by number, that of `reference`.
std::optional<int> holder(const Match& match, const Values& reference) {
  for (const Shard& shard : match.candidate) {
    const Placement& placement = shard.record->placement;
    if (placement.dims.size() == reference.shape.size() &&
        local_values(shard).data == values_at(reference, shard)) {
      return shard.rank;
    }
  }
  return std::nullopt;
}

// A parameter that the candidate lacks, with all of its layer: another layer of the candidate may
// hold these values under its own number. All layers' norms begin alike, so that any parameter of
// the layer may tell.
std::optional<Hypothesis> under_other_number(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const auto path = evidence.vocabulary().numbered(Role::kLayers, id.path);
  if (!path || id.kind != Kind::kParam) {
    return std::nullopt;
  }
  const std::string prefix = path->before + std::to_string(path->number) + ".";
  for (const Match& missing : evidence.matches()) {
    if (missing.id.kind != Kind::kParam || missing.id.step != id.step ||
        !missing.id.path.starts_with(prefix) || !missing.candidate.empty()) {
      continue;
    }
    const auto value = evidence.reference(missing);
    for (const Match& other : evidence.matches()) {
      if (!value || other.id.kind != Kind::kParam || other.id.step != id.step ||
          !evidence.vocabulary().differ_in_number(Role::kLayers, other.id.path, missing.id.path)) {
        continue;
      }
      const auto own = evidence.reference(other);
      const auto rank = holder(other, *value);
      if (rank && own && own->data != value->data) {
        return Hypothesis{.signature = Signature::kWrongLayer,
                          .sentence = fmt::format("no rank has layer {}; what it is in the "
                                                  "reference, rank {} holds as {}: some stages "
                                                  "number their layers from another offset",
                                                  path->number,
                                                  *rank,
                                                  to_string(other.id)),
                          .named = {.ranks = {*rank}}};
      }
    }
  }
  return std::nullopt;
}

// Layers' numbers that ranks at several places of an axis claim, where other layers have one place
// only: two stages number their layers alike.
std::optional<Hypothesis> claimed_twice(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const auto lacking = evidence.vocabulary().numbered(Role::kLayers, id.path);
  for (const std::string& axis : evidence.axes()) {
    std::map<std::int64_t, std::set<int>> places;  // by layer
    for (const Match& match : evidence.matches()) {
      const auto path = evidence.vocabulary().numbered(Role::kLayers, match.id.path);
      if (!lacking || match.id.kind != Kind::kParam || match.id.step != id.step || !path ||
          path->before != lacking->before) {
        continue;
      }
      for (const Shard& shard : match.candidate) {
        places[path->number].insert(evidence.layout(shard.rank).coordinate(axis));
      }
    }
    const auto is_twice = [](const auto& layer) { return layer.second.size() > 1; };
    const auto twice = std::find_if(places.begin(), places.end(), is_twice);
    if (twice != places.end() && !std::all_of(places.begin(), places.end(), is_twice)) {
      return Hypothesis{.signature = Signature::kWrongLayer,
                        .sentence = fmt::format("no rank has layer {}, and layer {} is claimed by "
                                                "ranks at {} places of {}: some stages "
                                                "number their layers from another offset",
                                                lacking->number,
                                                twice->first,
                                                twice->second.size(),
                                                axis),
                        .named = {.axes = {axis}}};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Hypothesis> find_layer_number(const Evidence& evidence) {
  if (evidence.finding().status() != Status::kMissingInCandidate) {
    return std::nullopt;
  }
  auto found = under_other_number(evidence);
  return found ? std::move(found) : claimed_twice(evidence);
}

std::optional<Hypothesis> find_other_layer(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  const auto path = evidence.vocabulary().numbered(Role::kLayers, evidence.finding().id.path);
  if (sides == nullptr || !path) {
    return std::nullopt;
  }
  std::vector<Hypothesis> found;
  double tried = 0.0;
  for (const Match& match : evidence.matches()) {
    TensorId same = match.id;
    same.path = evidence.finding().id.path;
    if (same != evidence.finding().id ||
        !evidence.vocabulary().differ_in_number(Role::kLayers, match.id.path, same.path)) {
      continue;
    }
    ++tried;
    const auto value = evidence.reference(match);
    const double rest = value ? distance(sides->candidate, *value) : 0.0;
    if (value && rest <= evidence.tolerance(sides->error)) {
      found.push_back({.signature = Signature::kWrongLayer,
                       .sentence = fmt::format(
                           "layer {} holds what layer {} has in the reference (difference {}, from "
                           "its own {}): stages take the layers in another order",
                           path->number,
                           evidence.vocabulary().numbered(Role::kLayers, match.id.path)->number,
                           short_number(rest),
                           short_number(sides->error)),
                       .error = sides->error,
                       .residual = rest});
    }
  }
  for (Hypothesis& each : found) {
    each.bits = bits_of_choice(tried);
  }
  return shortest(evidence, std::move(found));
}

}  // namespace ttrace
