#include "analysis/guess/parameter_shapes.h"

#include "analysis/align/module_path.h"
#include "analysis/guess/linear_order.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace ttrace {
namespace {

using Shape = std::vector<std::int64_t>;

std::multiset<Shape> shapes_of(const GuessSide& side, const GuessModule& module) {
  std::multiset<Shape> shapes;
  for (const UnitNumber unit : module.parameters) {
    shapes.insert(side.unit(unit).shape);
  }
  return shapes;
}

// The shape of the only matrix; empty if there is none or another one.
Shape matrix_of(const GuessSide& side, const GuessModule& module) {
  Shape matrix;
  for (const UnitNumber unit : module.parameters) {
    const Shape& shape = side.unit(unit).shape;
    if (shape.size() == 2) {
      if (!matrix.empty()) {
        return {};
      }
      matrix = shape;
    }
  }
  return matrix;
}

std::string leaf_of(const Unit& unit) {
  return path_parts(unit.id.path).back();
}

}  // namespace

bool ParameterShapes::is_open(Names side, const GuessModule& module) const {
  return std::ranges::none_of(module.parameters,
                              [&](UnitNumber unit) { return state_.pairings.has(side, unit); });
}

bool ParameterShapes::anchored(const GuessModule& reference, const GuessModule& candidate) const {
  return std::ranges::any_of(reference.parameters, [&](UnitNumber unit) {
    const auto partner = state_.pairings.partner(Names::kReference, unit);
    return partner &&
           std::ranges::find(candidate.parameters, *partner) != candidate.parameters.end();
  });
}

bool ParameterShapes::fit(UnitNumber reference, UnitNumber candidate) const {
  return !arrangements(state_.reference.unit(reference).shape,
                       state_.candidate.unit(candidate).shape)
              .empty();
}

bool ParameterShapes::fit(const GuessModule& reference, const GuessModule& candidate) const {
  if (!is_open(Names::kReference, reference) || !is_open(Names::kCandidate, candidate) ||
      reference.parameters.size() != candidate.parameters.size()) {
    return false;
  }
  std::vector<UnitNumber> free = candidate.parameters;
  return std::ranges::all_of(reference.parameters, [&](UnitNumber unit) {
    const auto found = std::ranges::find_if(free, [&](UnitNumber one) { return fit(unit, one); });
    if (found == free.end()) {
      return false;
    }
    free.erase(found);
    return true;
  });
}

bool ParameterShapes::are_parts(Names side,
                                std::span<const GuessModule* const> parts,
                                const GuessModule& whole) const {
  const Shape joint = matrix_of(state_.side(other(side)), whole);
  if (joint.empty() || !is_open(other(side), whole)) {
    return false;
  }
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  for (const GuessModule* part : parts) {
    const Shape matrix = matrix_of(state_.side(side), *part);
    if (matrix.empty() || !is_open(side, *part) ||
        part->parameters.size() != whole.parameters.size() ||
        !take_the_same(side, *part, *parts.front()) || (columns != 0 && columns != matrix[1])) {
      return false;
    }
    rows += matrix[0];
    columns = matrix[1];
  }
  return joint == Shape{rows, columns} || joint == Shape{columns, rows};
}

bool ParameterShapes::are_alike(Names side, const GuessModule& one, const GuessModule& two) const {
  return shapes_of(state_.side(side), one) == shapes_of(state_.side(side), two);
}

bool ParameterShapes::take_the_same(Names side,
                                    const GuessModule& one,
                                    const GuessModule& two) const {
  const GuessSide& own = state_.side(side);
  const auto first = own.source_of(one, 0);
  const auto second = own.source_of(two, 0);
  if (!first || !second) {
    return first == second;
  }
  if (*first == *second) {
    return true;
  }
  if (own.summary(*first).norm != own.summary(*second).norm) {
    return false;  // without reading them again
  }
  const TensorValues left = own.values(*first);
  const TensorValues right = own.values(*second);
  return left != nullptr && right != nullptr && relative_distance(*left, *right) == 0.0;
}

bool ParameterShapes::begin_alike(UnitNumber reference, UnitNumber candidate) const {
  const TensorValues left = state_.reference.values(reference);
  const TensorValues right = state_.candidate.values(candidate);
  return left != nullptr && right != nullptr && left->shape == right->shape &&
         varies(*left) == varies(*right) &&
         (varies(*left) || relative_distance(*left, *right) == 0.0);
}

bool ParameterShapes::begin_otherwise(UnitNumber reference, UnitNumber candidate) const {
  const TensorValues left = state_.reference.values(reference);
  const TensorValues right = state_.candidate.values(candidate);
  return left != nullptr && right != nullptr && !varies(*left) && !varies(*right) &&
         !begin_alike(reference, candidate);
}

std::optional<Arrangement> ParameterShapes::arrangement(UnitNumber reference,
                                                        UnitNumber candidate) const {
  std::vector<Arrangement> ways =
      arrangements(state_.reference.unit(reference).shape, state_.candidate.unit(candidate).shape);
  const auto different =
      std::ranges::count_if(ways, [](const Arrangement& one) { return !one.is_same(); });
  if (ways.empty() || different == 0 || ways.size() == 1) {
    return ways.empty() ? std::nullopt : std::optional(std::move(ways.front()));
  }
  const auto left = keeps_inputs_last(state_.reference, reference);
  const auto right = keeps_inputs_last(state_.candidate, candidate);
  if (ways.size() != 2 || !left || !right) {
    return std::nullopt;  // a square could be transposed
  }
  return std::move(ways[*left == *right ? 0 : 1]);
}

std::vector<Pairing> ParameterShapes::leaves(const GuessModule& reference,
                                             const GuessModule& candidate) const {
  using Fits = std::function<bool(UnitNumber, UnitNumber)>;
  // Programs agree about these two names. They differ in which of two matrices they call `w1`.
  const Fits same_name = [&](UnitNumber left, UnitNumber right) {
    const std::string leaf = leaf_of(state_.reference.unit(left));
    return fit(left, right) && !begin_otherwise(left, right) &&
           (leaf == "weight" || leaf == "bias") && leaf == leaf_of(state_.candidate.unit(right));
  };
  const Fits same_shape = [&](UnitNumber left, UnitNumber right) { return fit(left, right); };
  const Fits same_start = [&](UnitNumber left, UnitNumber right) {
    return begin_alike(left, right);
  };
  std::vector<UnitNumber> ours = reference.parameters;
  std::vector<UnitNumber> theirs = candidate.parameters;
  std::vector<Pairing> pairs;
  for (const Fits& fits : {same_name, same_shape, same_start}) {
    for (const UnitNumber left : std::vector<UnitNumber>(ours)) {
      const auto is_partner = [&](UnitNumber right) { return fits(left, right); };
      const auto found = std::ranges::find_if(theirs, is_partner);
      if (found == theirs.end() || std::ranges::count_if(theirs, is_partner) != 1 ||
          std::ranges::count_if(ours, [&](UnitNumber one) { return fits(one, *found); }) != 1) {
        continue;
      }
      if (auto how = arrangement(left, *found)) {
        pairs.push_back({.reference = {left}, .candidate = {*found}, .dims = std::move(*how)});
      }
      std::erase(ours, left);
      theirs.erase(found);
    }
  }
  return pairs;
}

}  // namespace ttrace
