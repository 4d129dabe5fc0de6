#include "analysis/infer/vote.h"

#include "analysis/align/module_path.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <tuple>

namespace ttrace {
namespace {

// The field that lies as this one by default.
std::string sibling_of(const std::string& field) {
  return field == "grad"          ? "value"
         : field == "value"       ? "grad"
         : field == "input_grads" ? "inputs"
         : field == "inputs"      ? "input_grads"
                                  : "";
}

struct Count {
  std::size_t votes = 0;
  int complexity = 0;
  std::string region;
};
using VoteCounts = std::map<std::string, Count>;  // by dims

VoteCounts count(const std::vector<const TensorFits*>& members) {
  // Noise allows everything: it is heard only where nobody else is.
  const bool any_signal = std::ranges::any_of(
      members, [](const TensorFits* fits) { return fits->has_signal() && !fits->fits.empty(); });
  VoteCounts counts;
  for (const TensorFits* const member : members) {
    for (const PlacementFit& fit : member->fits) {
      Count& count = counts[fit.dims];
      count.votes += !any_signal || member->has_signal() ? 1 : 0;
      count.complexity = fit.complexity;
      count.region = fit.region;
    }
  }
  return counts;
}

// Tensors by dims.
using Usage = std::map<std::string, std::size_t>;

// `region`: how what belongs to the class is cut, where that is known. `usage`: of tensors of the
// same sizes.
Election decide(const VoteCounts& counts,
                const std::optional<std::string>& region,
                const Usage& usage) {
  Election election;
  election.votes = std::ranges::max(
      counts | std::views::transform([](const auto& entry) { return entry.second.votes; }));
  // Cut otherwise than what belongs to the class; how unusual; how complicated.
  const auto rank = [&](const VoteCounts::value_type& entry) {
    const auto used = usage.find(entry.first);
    return std::tuple(region && entry.second.region != *region,
                      used == usage.end() ? 0 : -static_cast<std::int64_t>(used->second),
                      entry.second.complexity);
  };
  const VoteCounts::value_type* winner = nullptr;
  for (const VoteCounts::value_type& entry : counts) {
    if (entry.second.votes == election.votes &&
        (winner == nullptr || rank(entry) < rank(*winner))) {
      winner = &entry;
    }
  }
  election.tied = static_cast<std::size_t>(
      std::ranges::count_if(counts, [&](const VoteCounts::value_type& entry) {
        return entry.second.votes == election.votes &&
               std::get<0>(rank(entry)) == std::get<0>(rank(*winner));
      }));
  election.dims = winner->first;
  election.region = winner->second.region;
  return election;
}

}  // namespace

PlacementClass placement_class(const TensorId& id) {
  // Calls of one operator have nothing in common but its name.
  return {is_of_operator(id.kind) ? fmt::format("{}#{}", id.path, id.call) : pattern_of(id.path),
          std::string(is_of_operator(id.kind) ? name_of(id.kind) : annotation_field(id.kind)),
          id.slot};
}

Elections elect(const Voters& voters) {
  Elections elections;
  std::map<PlacementClass, VoteCounts> counted;
  std::map<std::string, Usage> usage;  // by sizes, of classes that are decided
  for (const auto& [tensors, members] : voters) {
    VoteCounts counts = count(members);
    if (counts.empty()) {
      continue;
    }
    Election& election = elections[tensors] = decide(counts, std::nullopt, {});
    election.sizes = members.front()->sizes;
    election.members = static_cast<std::size_t>(
        std::ranges::count_if(members, [](const TensorFits* fits) { return !fits->fits.empty(); }));
    if (election.tied == 1) {
      usage[election.sizes][election.dims] += election.votes;
    }
    counted.emplace(tensors, std::move(counts));
  }
  const Elections alone = elections;
  for (auto& [tensors, election] : elections) {
    if (election.tied == 1) {
      continue;
    }
    const auto other = alone.find({tensors.pattern, sibling_of(tensors.field), tensors.slot});
    const bool known = other != alone.end() && other->second.tied == 1;
    const Election decided = decide(counted.at(tensors),
                                    known ? std::optional(other->second.region) : std::nullopt,
                                    usage[election.sizes]);
    election.dims = decided.dims;
    election.region = decided.region;
    election.tied = decided.tied;
  }
  return elections;
}

}  // namespace ttrace
