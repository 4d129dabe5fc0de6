#include "analysis/guess/pairings.h"

#include "analysis/align/merged_copy.h"
#include "analysis/rename/rearrange.h"
#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

constexpr auto kUnrelated = std::numeric_limits<double>::infinity();
// Sums in another order and a few dozen layers: measured at up to 3e-5 in F32.
constexpr double kLeastRoundOff = 2e-3;
constexpr double kRoundings = 32.0;

// The tensors of one side. Empty if one of them has no values.
std::vector<TensorValues> values_of(const GuessSide& side, std::span<const TensorId> ids) {
  std::vector<TensorValues> tensors;
  for (const TensorId& id : ids) {
    tensors.push_back(side.values(id));
    if (tensors.back() == nullptr) {
      return {};
    }
  }
  return tensors;
}

MergeResult arranged(const MergeResult& tensor, const Arrangement& how) {
  return how.is_same() ? copy_of(tensor) : to_candidate(tensor, how);
}

// The parts as one tensor, in the candidate's arrangement.
MergeResult put_together(const std::vector<TensorValues>& parts,
                         const Fusion& fusion,
                         const Arrangement& how,
                         bool of_parameter) {
  std::vector<MergeResult> tensors;
  for (const TensorValues& part : parts) {
    tensors.push_back(of_parameter ? copy_of(*part) : arranged(*part, how));
  }
  if (tensors.size() == 1) {
    return of_parameter ? arranged(tensors.front(), how) : std::move(tensors.front());
  }
  const std::size_t dim = of_parameter ? 0 : tensors.front().shape.size() - 1;
  MergeResult whole = fused(tensors, fusion, dim);
  return of_parameter ? arranged(whole, how) : std::move(whole);
}

}  // namespace

std::string_view name_of(Certainty certainty) {
  return certainty == Certainty::kCertain ? "certain" : "likely";
}

void Pairings::add(Pairing pairing) {
  for (const Names side : kBothNames) {
    for (const UnitNumber unit : pairing.of(side)) {
      const bool is_new = places_.emplace(std::pair(side, unit), all_.size()).second;
      TTRACE_CHECK(is_new, InternalError, "a unit of the guess has two counterparts");
    }
  }
  all_.push_back(std::move(pairing));
}

const Pairing* Pairings::find(Names side, UnitNumber unit) const {
  const auto found = places_.find({side, unit});
  return found == places_.end() ? nullptr : &all_[found->second];
}

std::optional<UnitNumber> Pairings::partner(Names side, UnitNumber unit) const {
  const Pairing* const pairing = find(side, unit);
  if (pairing == nullptr || pairing->of(other(side)).size() != 1 || pairing->of(side).size() != 1) {
    return std::nullopt;
  }
  return pairing->of(other(side)).front();
}

void Pairings::ask(OpenUnit open) {
  if (!is_open(open.side, open.unit)) {
    open_.push_back(std::move(open));
  }
}

bool Pairings::is_open(Names side, UnitNumber unit) const {
  return std::ranges::any_of(
      open_, [&](const OpenUnit& open) { return open.side == side && open.unit == unit; });
}

double distance_of(const GuessState& state,
                   std::span<const TensorId> reference,
                   std::span<const TensorId> candidate,
                   const Fusion& fusion,
                   const Arrangement& how) {
  const auto left = values_of(state.reference, reference);
  const auto right = values_of(state.candidate, candidate);
  if (left.empty() || right.empty()) {
    return kUnrelated;
  }
  const bool of_parameter = is_of_parameter(reference.front().kind);
  try {
    const MergeResult one = put_together(left, fusion, how, of_parameter);
    const MergeResult two = put_together(right, fusion, {}, of_parameter);
    return relative_distance(one, two);
  } catch (const UsageError&) {
    return kUnrelated;  // shapes that cannot be put together so
  }
}

double round_off(ElementType reference, ElementType candidate) {
  return std::max(kLeastRoundOff,
                  kRoundings * std::max(rounding_error(reference), rounding_error(candidate)));
}

}  // namespace ttrace
