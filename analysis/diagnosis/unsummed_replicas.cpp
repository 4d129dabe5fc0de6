#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>

namespace ttrace {
namespace {

// The copies of the ranks that differ from `first` on `axis` alone, `first` among them.
std::vector<const Shard*> line_along(const Evidence& evidence,
                                     const Shard& first,
                                     const std::string& axis) {
  std::vector<const Shard*> line;
  const std::vector<std::string> axes = evidence.axes();
  for (const Shard& shard : evidence.match().candidate) {
    const bool beside = std::all_of(axes.begin(), axes.end(), [&](const std::string& other) {
      return other == axis || evidence.layout(shard.rank).coordinate(other) ==
                                  evidence.layout(first.rank).coordinate(other);
    });
    if (beside && shard.record->placement == first.record->placement) {
      line.push_back(&shard);
    }
  }
  return line;
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
double distance_of_sum(const std::vector<const Shard*>& line,
                       const Values& reference,
                       const std::optional<Values>& bias) {
  Values sum{reference.shape, std::vector<double>(reference.data.size())};
  for (const Shard* shard : line) {
    const Values copy = Evidence::local(*shard);
    if (copy.shape != reference.shape) {
      return distance(copy, reference);
    }
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] += copy.data[i];
    }
  }
  if (bias && !reference.shape.empty() && std::ssize(bias->data) == reference.shape.back()) {
    const auto repeated = static_cast<double>(line.size() - 1);
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
  if (evidence.finding().symptom != Symptom::kReplicasDisagree || sides == nullptr ||
      !match.candidate.front().record->placement.is_whole()) {
    return std::nullopt;
  }
  const auto bias = bias_of(evidence);
  for (const std::string& axis : evidence.axes()) {
    const auto line = line_along(evidence, match.candidate.front(), axis);
    if (line.size() < 2) {
      continue;
    }
    const double rest = distance_of_sum(line, sides->reference, bias);
    if (rest <= evidence.tolerance(sides->error)) {
      std::vector<int> ranks;
      for (const Shard* shard : line) {
        ranks.push_back(shard->rank);
      }
      return Diagnosis{Signature::kMissingReduction,
                       "every rank holds its own addend: the sum over " + axis +
                           " is missing; added up, what " + ranks_text(ranks) +
                           " hold is the reference" + (bias ? ", the bias counted once," : "") +
                           " up to " + short_number(rest) + ", each alone is off by up to " +
                           short_number(sides->error)};
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> find_diverged_replicas(const Evidence& evidence) {
  if (evidence.finding().symptom != Symptom::kReplicasDisagree) {
    return std::nullopt;
  }
  const Sides* sides = evidence.sides();
  return Diagnosis{
      Signature::kReplicasDiverge,
      ranks_text(evidence.finding().ranks) +
          " should hold equal copies and do not; no factor, sum or order found between them" +
          (sides == nullptr ? ", and all of them are within the bound of the reference" : "")};
}

}  // namespace ttrace
