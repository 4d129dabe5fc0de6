#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// Squared norms of the main gradients that the ranks hold.
struct Gradients {
  double whole = 0.0;           // over all, every logical element once
  double held = 0.0;            // over all ranks, copies included
  std::map<int, double> own;    // by rank: all that it holds
  std::map<int, double> split;  // by rank: without tensors of which all ranks hold the same
  double experts = 0.0;         // of experts' parameters, every logical element once
  double vectors = 0.0;         // of parameters with one dimension
  double parts = 0.0;           // of experts' parameters, without the first rank's part of each
};

bool is_of_expert(const std::string& path) {
  return path.find(".experts.") != std::string::npos;
}

bool same_region(const Shard& left, const Shard& right) {
  return left.record->placement.dims == right.record->placement.dims &&
         left.record->placement.flat == right.record->placement.flat &&
         left.record->placement.partial_index == right.record->placement.partial_index;
}

void add(const Match& match, Gradients& gradients) {
  const std::vector<Shard>& shards = match.candidate;
  const bool expert = is_of_expert(match.id.path);
  const bool replicated = std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    return same_region(shard, shards.front());
  });
  for (auto shard = shards.begin(); shard != shards.end(); ++shard) {
    const double squared = std::pow(shard->record->norm * shard->record->placement.scale, 2);
    const bool copy = std::any_of(
        shards.begin(), shard, [&](const Shard& earlier) { return same_region(earlier, *shard); });
    gradients.whole += copy ? 0.0 : squared;
    gradients.experts += copy || !expert ? 0.0 : squared;
    gradients.parts += copy || !expert || shard == shards.begin() ? 0.0 : squared;
    gradients.vectors += copy || shard->record->placement.dims.size() != 1 ? 0.0 : squared;
    gradients.held += squared;
    gradients.own[shard->rank] += squared;
    gradients.split[shard->rank] += replicated ? 0.0 : squared;
  }
}

Gradients gradients_of(const Evidence& evidence) {
  Gradients gradients;
  for (const Match& match : evidence.matches()) {
    if (match.id.step == evidence.finding().id.step && match.id.kind == Kind::kMainGrad) {
      add(match, gradients);
    }
  }
  return gradients;
}

// Main gradients are summed in f32 by most trainers, in an order of their own.
constexpr double kRelative = 1e-3;

// Of what is left out: a part of the gradients may be small.
constexpr double kFine = 2e-4;

bool is_norm(double value, double squared) {
  return squared > 0.0 && std::abs(value - std::sqrt(squared)) <= kRelative * std::abs(value);
}

bool is_norm_of_own(const Gradients& gradients, int rank, double value) {
  const auto own = gradients.own.find(rank);
  return own != gradients.own.end() && !is_norm(value, gradients.whole) &&
         (is_norm(value, own->second) || is_norm(value, gradients.split.at(rank)));
}

// One value on all ranks that is the norm without some of the parameters, or without any.
std::optional<Diagnosis> parameters_left_out(const Match& match,
                                             const Gradients& gradients,
                                             const std::string& values) {
  struct Group {
    double squared;
    const char* what;
  };
  const std::array groups = {
      Group{gradients.whole, "a norm of no gradients at all"},
      Group{gradients.experts, "a norm that leaves the parameters of experts out"},
      Group{gradients.parts, "a norm that counts one rank's part of the parameters of experts"},
      Group{gradients.vectors, "a norm that leaves parameters with one dimension out"}};
  for (const Group& group : groups) {
    const double rest = std::sqrt(std::max(0.0, gradients.whole - group.squared));
    const double norm = std::sqrt(gradients.whole);
    const bool tells = norm - rest > 3.0 * kFine * norm;
    const bool is =
        std::all_of(match.candidate.begin(), match.candidate.end(), [&](const Shard& shard) {
          return std::abs(Evidence::local(shard).data.at(0) - rest) <= kFine * norm;
        });
    if (tells && is && !match.candidate.empty()) {
      return Diagnosis{
          Signature::kLocalNorm,
          std::string(group.what) + " (" + values + "); with all it is " + short_number(norm)};
    }
  }
  return std::nullopt;
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
  if (auto left_out = parameters_left_out(match, gradients, values)) {
    return left_out;
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
