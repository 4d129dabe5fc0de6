#include "analysis/guess/equal_values.h"

#include "analysis/align/values.h"
#include "analysis/guess/joined_rows.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace ttrace {
namespace {

using Bucket = Both<std::vector<UnitNumber>>;

// By the count of numbers and their digest: tensors of one bucket may hold the same ones.
using Buckets = std::map<std::pair<std::size_t, std::uint64_t>, Bucket>;

// The type to which the values of both programs are rounded before they are compared.
ElementType coarsest_type(const GuessState& state) {
  ElementType coarsest = ElementType::kF64;
  for (const Names side : kBothNames) {
    for (const Unit& unit : state.side(side).units()) {
      const ElementType type = state.side(side).type_of(unit.id);
      if (unit.role == UnitRole::kParameter && is_floating(type) &&
          rounding_error(type) > rounding_error(coarsest)) {
        coarsest = type;
      }
    }
  }
  return coarsest;
}

Buckets buckets_of(const GuessState& state, ElementType type) {
  Buckets buckets;
  for (const Names side : kBothNames) {
    const GuessSide& own = state.side(side);
    for (UnitNumber number = 0; number < own.units().size(); ++number) {
      const TensorValues values =
          own.unit(number).role == UnitRole::kParameter ? own.values(number) : nullptr;
      if (values != nullptr && !state.pairings.has(side, number)) {
        const std::vector<double> numbers = rounded(numbers_of(*values), type);
        buckets[{numbers.size(), digest_in_any_order(numbers)}].of(side).push_back(number);
      }
    }
  }
  return buckets;
}

// Those in which the two parameters have the same numbers at the same places.
std::vector<Arrangement> equal_arrangements(const GuessState& state,
                                            UnitNumber reference,
                                            UnitNumber candidate) {
  const TensorId& left = state.reference.unit(reference).id;
  const TensorId& right = state.candidate.unit(candidate).id;
  const double coarser = std::max(rounding_error(state.reference.type_of(left)),
                                  rounding_error(state.candidate.type_of(right)));
  const bool same_type = state.reference.type_of(left) == state.candidate.type_of(right);
  std::vector<Arrangement> equal;
  for (Arrangement& how :
       arrangements(state.reference.unit(reference).shape, state.candidate.unit(candidate).shape)) {
    const double error = distance_of(state, left, right, how);
    if (error <= (same_type ? 0.0 : 2.0 * coarser)) {
      equal.push_back(std::move(how));
    }
  }
  return equal;
}

// The largest distance of the gradients that both have; nothing if there are none, or one is zero.
std::optional<double> gradient_distance(const GuessState& state,
                                        UnitNumber reference,
                                        UnitNumber candidate,
                                        const Arrangement& how) {
  std::optional<double> largest;
  for (const TensorId& left : state.reference.gradients(reference)) {
    for (const TensorId& right : state.candidate.gradients(candidate)) {
      if (left.kind == right.kind && state.reference.summary(left).norm > 0.0) {
        largest = std::max(largest.value_or(0.0), distance_of(state, left, right, how));
      }
    }
  }
  return largest;
}

double gradient_round_off(const GuessState& state, UnitNumber reference, UnitNumber candidate) {
  double limit = 0.0;
  for (const TensorId& left : state.reference.gradients(reference)) {
    for (const TensorId& right : state.candidate.gradients(candidate)) {
      limit =
          std::max(limit, round_off(state.reference.type_of(left), state.candidate.type_of(right)));
    }
  }
  return limit;
}

bool varies_in(const GuessSide& side, UnitNumber unit) {
  return side.summary(side.unit(unit).id).varies;
}

// A pair whose gradients agree.
struct GradientPair {
  UnitNumber reference = 0;
  UnitNumber candidate = 0;
  Arrangement how;
  double error = 0.0;
};

void pair_by_gradients(GuessState& state, const Bucket& bucket, bool constant) {
  std::vector<GradientPair> agreements;
  std::map<UnitNumber, int> of_reference;
  std::map<UnitNumber, int> of_candidate;
  for (const UnitNumber left : bucket.reference) {
    for (const UnitNumber right : bucket.candidate) {
      for (const Arrangement& how : equal_arrangements(state, left, right)) {
        const auto error = gradient_distance(state, left, right, how);
        if (error && *error <= gradient_round_off(state, left, right)) {
          agreements.push_back({left, right, how, *error});
          ++of_reference[left];
          ++of_candidate[right];
          break;
        }
      }
    }
  }
  for (GradientPair& one : agreements) {
    if (of_reference[one.reference] == 1 && of_candidate[one.candidate] == 1) {
      state.pairings.add({.reference = {one.reference},
                          .candidate = {one.candidate},
                          .dims = std::move(one.how),
                          .certainty = Certainty::kCertain,
                          .evidence = constant ? "equal gradients (the values are constants)"
                                               : "equal values and gradients",
                          .error = one.error});
    }
  }
}

void pair_whole_parameters(GuessState& state, const Buckets& buckets) {
  for (const auto& [print, bucket] : buckets) {
    if (bucket.reference.size() != 1 || bucket.candidate.size() != 1 ||
        !varies_in(state.reference, bucket.reference.front())) {
      continue;
    }
    std::vector<Arrangement> equal =
        equal_arrangements(state, bucket.reference.front(), bucket.candidate.front());
    if (!equal.empty() && (equal.size() == 1 || equal.front().is_same())) {
      state.pairings.add({.reference = bucket.reference,
                          .candidate = bucket.candidate,
                          .dims = std::move(equal.front()),
                          .certainty = Certainty::kCertain,
                          .evidence = "equal values"});
    }
  }
}

void pair_twins(GuessState& state, const Buckets& buckets) {
  for (const auto& [print, bucket] : buckets) {
    Bucket rest;
    for (const Names side : kBothNames) {
      std::ranges::copy_if(bucket.of(side),
                           std::back_inserter(rest.of(side)),
                           [&](UnitNumber unit) { return !state.pairings.has(side, unit); });
    }
    if (!rest.reference.empty() && !rest.candidate.empty()) {
      pair_by_gradients(state, rest, !varies_in(state.reference, rest.reference.front()));
    }
  }
}

// The vectors of a module that are not decided, with one number for each of `rows`.
std::vector<UnitNumber> open_vectors(const GuessState& state,
                                     Names side,
                                     UnitNumber weight,
                                     std::int64_t rows) {
  const GuessSide& own = state.side(side);
  std::vector<UnitNumber> vectors;
  for (const UnitNumber number : own.module(owner_of(own.unit(weight).id.path))->parameters) {
    const Unit& unit = own.unit(number);
    if (!state.pairings.has(side, number) && unit.shape.size() == 1 && unit.shape[0] == rows) {
      vectors.push_back(number);
    }
  }
  return vectors;
}

// The bias of a weight that has parts, from those of the parts.
std::optional<Pairing> companion_of(const GuessState& state, const Pairing& weight) {
  const Names parts = weight.reference.size() > 1 ? Names::kReference : Names::kCandidate;
  Pairing bias = {.fusion = weight.fusion};
  std::int64_t rows = 0;
  for (const UnitNumber part : weight.of(parts)) {
    const std::int64_t own_rows = state.side(parts).unit(part).shape[0];
    const auto vectors = open_vectors(state, parts, part, own_rows);
    rows += own_rows;
    if (vectors.size() != 1) {
      return std::nullopt;
    }
    bias.of(parts).push_back(vectors.front());
  }
  const auto whole = open_vectors(state, other(parts), weight.of(other(parts)).front(), rows);
  if (whole.size() != 1) {
    return std::nullopt;
  }
  bias.of(other(parts)) = whole;
  return bias;
}

std::vector<TensorId> gradients_of(const GuessSide& side, std::span<const UnitNumber> units) {
  std::vector<TensorId> ids = side.ids(units);
  for (TensorId& id : ids) {
    id.kind = Kind::kMainGrad;
  }
  return ids;
}

void pair_companions(GuessState& state) {
  std::vector<Pairing> found;
  for (const Pairing& weight : state.pairings.all()) {
    if (!weight.has_parts()) {
      continue;
    }
    auto bias = companion_of(state, weight);
    if (!bias) {
      continue;
    }
    const auto left = state.reference.ids(bias->reference);
    const auto right = state.candidate.ids(bias->candidate);
    if (distance_of(state, left, right, bias->fusion, {}) > 0.0) {
      continue;
    }
    const Names whole = bias->reference.size() == 1 ? Names::kReference : Names::kCandidate;
    const bool shown = varies_in(state.side(whole), bias->of(whole).front());
    const double error = distance_of(state,
                                     gradients_of(state.reference, bias->reference),
                                     gradients_of(state.candidate, bias->candidate),
                                     bias->fusion,
                                     {});
    const bool same_gradient = error <= round_off(ElementType::kF32, ElementType::kF32);
    bias->certainty = shown || same_gradient ? Certainty::kCertain : Certainty::kLikely;
    bias->evidence = shown           ? "equal values"
                     : same_gradient ? "equal gradients, and it belongs to a weight with parts"
                                     : "it belongs to a weight with parts";
    found.push_back(std::move(*bias));
  }
  for (Pairing& bias : found) {
    state.pairings.add(std::move(bias));
  }
}

}  // namespace

void pair_equal_parameters(GuessState& state) {
  const ElementType type = coarsest_type(state);
  const Buckets buckets = buckets_of(state, type);
  pair_whole_parameters(state, buckets);
  pair_joined_rows(state, type);
  pair_companions(state);
  pair_twins(state, buckets);
}

}  // namespace ttrace
