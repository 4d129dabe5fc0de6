#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace ttrace {
namespace {

// Bit-equal copies, in the order of their first ranks. Axes do not tell which ranks hold what:
// those of experts are another view of the same ranks, so that copies may differ along two axes at
// once.
using Copies = std::vector<const Shard*>;

std::vector<Copies> distinct_copies(const Match& match) {
  std::vector<Copies> groups;
  for (const Shard& shard : match.candidate) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Copies& group) {
      return group.front()->record->digest == shard.record->digest;
    });
    if (same == groups.end()) {
      groups.push_back({&shard});
    } else {
      same->push_back(&shard);
    }
  }
  return groups;
}

// Axes on which every group has a place of its own.
std::string axes_apart(const Evidence& evidence, const std::vector<Copies>& groups) {
  std::string names;
  for (const std::string& axis : evidence.axes()) {
    std::set<int> places;
    bool apart = true;
    for (const Copies& group : groups) {
      std::set<int> own;
      for (const Shard* shard : group) {
        own.insert(evidence.layout(shard->rank).coordinate(axis));
      }
      apart = apart && own.size() == 1 && places.insert(*own.begin()).second;
    }
    if (apart) {
      names += (names.empty() ? "" : " and ") + axis;
    }
  }
  return names.empty() ? "ranks" : names;
}

std::optional<Values> bias_of(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const Match* match =
      id.kind == Kind::kOutput
          ? evidence.find({.step = id.step, .kind = Kind::kParam, .path = id.path + ".bias"})
          : nullptr;
  return match == nullptr ? std::nullopt : evidence.reference(*match);
}

// ||sum of the copies - reference||, a bias that each copy carries counted once.
double distance_of_sum(const std::vector<Copies>& groups,
                       const Values& reference,
                       const std::optional<Values>& bias) {
  Values sum{reference.shape, std::vector<double>(reference.data.size())};
  for (const Copies& group : groups) {
    const Values copy = Evidence::local(*group.front());
    if (copy.shape != reference.shape) {
      return distance(copy, reference);
    }
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] += copy.data[i];
    }
  }
  if (bias && !reference.shape.empty() && std::ssize(bias->data) == reference.shape.back()) {
    const auto repeated = static_cast<double>(groups.size() - 1);
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] -= repeated * bias->data[i % bias->data.size()];
    }
  }
  return distance(sum, reference);
}

}  // namespace

std::optional<Diagnosis> find_unsummed_replicas(const Evidence& evidence) {
  const Match& match = evidence.match();
  const Sides* sides = evidence.sides();
  const bool whole =
      std::all_of(match.candidate.begin(), match.candidate.end(), [](const Shard& shard) {
        return shard.record->placement.is_whole();
      });
  if (evidence.finding().symptom != Symptom::kReplicasDisagree || sides == nullptr || !whole) {
    return std::nullopt;
  }
  const auto bias = bias_of(evidence);
  const std::vector<Copies> groups = distinct_copies(match);
  const double rest = distance_of_sum(groups, sides->reference, bias);
  // A copy that is right already is no addend, however small the others are.
  double nearest = sides->error;
  for (const Copies& group : groups) {
    nearest = std::min(nearest, distance(Evidence::local(*group.front()), sides->reference));
  }
  if (rest > evidence.tolerance(sides->error) || rest > 0.5 * nearest) {
    return std::nullopt;
  }
  std::vector<int> ranks;
  for (const Copies& group : groups) {
    ranks.push_back(group.front()->rank);
  }
  return Diagnosis{Signature::kMissingReduction,
                   "every rank holds its own addend: the sum over " + axes_apart(evidence, groups) +
                       " is missing; added up, what " + ranks_text(ranks) +
                       " hold is the reference" + (bias ? ", the bias counted once," : "") +
                       " up to " + short_number(rest) + ", each alone is off by up to " +
                       short_number(sides->error)};
}

namespace {

// A scale is made from the largest magnitude of all ranks' parts.
std::string largest_text(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  const auto reference = evidence.reference(evidence.match());
  if ((kind != Kind::kScale && kind != Kind::kAmaxHistory) || !reference ||
      reference->data.empty()) {
    return "";
  }
  constexpr double kSame = 1e-3;
  double largest = 0.0;
  for (const Shard& shard : evidence.match().candidate) {
    largest = std::max(largest, shard.record->max_abs * shard.record->placement.scale);
  }
  const double right = std::ranges::max(reference->data);
  return std::abs(largest - right) <= kSame * right
             ? "; the largest of them is the reference's: every rank took the amax of its own part"
             : "";
}

}  // namespace

std::optional<Diagnosis> find_diverged_replicas(const Evidence& evidence) {
  if (evidence.finding().symptom != Symptom::kReplicasDisagree) {
    return std::nullopt;
  }
  const Sides* sides = evidence.sides();
  return Diagnosis{
      Signature::kReplicasDiverge,
      ranks_text(evidence.finding().ranks) +
          " should hold equal copies and do not; no factor, sum or order found between them" +
          (sides == nullptr ? ", and all of them are within the bound of the reference" : "") +
          largest_text(evidence)};
}

}  // namespace ttrace
