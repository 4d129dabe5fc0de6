#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace ttrace {
namespace {

// Squared norms of the main gradients that the ranks hold.
struct Gradients {
  double whole = 0.0;           // over all, every logical element once
  double held = 0.0;            // over all ranks, copies included
  std::map<int, double> own;    // by rank: all that it holds
  std::map<int, double> split;  // by rank: without tensors of which all ranks hold the same
};

bool same_region(const Shard& left, const Shard& right) {
  return left.record->placement.dims == right.record->placement.dims &&
         left.record->placement.flat == right.record->placement.flat &&
         left.record->placement.partial_index == right.record->placement.partial_index;
}

void add(const std::vector<Shard>& shards, Gradients& gradients) {
  const bool replicated = std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    return same_region(shard, shards.front());
  });
  for (auto shard = shards.begin(); shard != shards.end(); ++shard) {
    const double squared = std::pow(shard->record->norm * shard->record->placement.scale, 2);
    const bool copy = std::any_of(
        shards.begin(), shard, [&](const Shard& earlier) { return same_region(earlier, *shard); });
    gradients.whole += copy ? 0.0 : squared;
    gradients.held += squared;
    gradients.own[shard->rank] += squared;
    gradients.split[shard->rank] += replicated ? 0.0 : squared;
  }
}

Gradients gradients_of(const Evidence& evidence) {
  Gradients gradients;
  for (const Match& match : evidence.matches()) {
    if (match.id.step == evidence.finding().id.step && match.id.kind == Kind::kMainGrad) {
      add(match.candidate, gradients);
    }
  }
  return gradients;
}

// Main gradients are summed in f32 by most trainers, in an order of their own.
constexpr double kRelative = 1e-3;

bool is_norm(double value, double squared) {
  return squared > 0.0 && std::abs(value - std::sqrt(squared)) <= kRelative * std::abs(value);
}

bool is_norm_of_own(const Gradients& gradients, int rank, double value) {
  const auto own = gradients.own.find(rank);
  return own != gradients.own.end() && !is_norm(value, gradients.whole) &&
         (is_norm(value, own->second) || is_norm(value, gradients.split.at(rank)));
}

}  // namespace

std::optional<Diagnosis> find_local_norm(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(match);
  if (match.id.kind != Kind::kScalar || match.id.path.find("norm") == std::string::npos ||
      !reference || reference->data.size() != 1) {
    return std::nullopt;
  }
  const Gradients gradients = gradients_of(evidence);
  if (!is_norm(reference->data[0], gradients.whole)) {
    return std::nullopt;  // the scalar is another norm, or the gradients differ as well
  }
  std::string values;
  bool local = !match.candidate.empty();
  bool repeated = local;
  for (const Shard& shard : match.candidate) {
    const double value = Evidence::local(shard).data.at(0);
    local = local && is_norm_of_own(gradients, shard.rank, value);
    repeated = repeated && std::pow(value / std::sqrt(gradients.whole), 2) > 1.0 + kRelative &&
               value <= std::sqrt(gradients.held) * (1.0 + kRelative);
    values += (values.empty() ? "rank " : ", rank ") + std::to_string(shard.rank) + " has " +
              short_number(value);
  }
  const std::string over_all = "; over all ranks it is " + short_number(std::sqrt(gradients.whole));
  if (local) {
    return Diagnosis{Signature::kLocalNorm,
                     "a norm over each rank's own gradients (" + values +
                         "), not summed over the ranks that share the model" + over_all};
  }
  if (repeated) {
    return Diagnosis{Signature::kLocalNorm,
                     "a norm that counts tensors which several ranks hold more than once (" +
                         values + ")" + over_all};
  }
  return std::nullopt;
}

}  // namespace ttrace
