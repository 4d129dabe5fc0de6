#include "analysis/checks/operator_check.h"

#include "analysis/align/machine.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/align/module_path.h"
#include "analysis/align/values.h"
#include "analysis/checks/slices.h"
#include "analysis/checks/values_check.h"
#include "trace/base/kind.h"
#include "trace/base/precision.h"
#include "trace/samples/borrowed_values.h"
#include "trace/sums/slices.h"
#include "trace/sums/squared.h"
#include "trace/sums/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

double equal_part(const Statistics& statistics) {
  return statistics.count > 0 ? 1.0 - static_cast<double>(statistics.different) /
                                          static_cast<double>(statistics.count)
                              : 0.0;
}

// The extra rounding that the layout causes, but for what may lie `anywhere`, relative to the
// operators' own roundings.
double growth_of(const OperatorResidual& residual, double anywhere) {
  const double own = residual.own();
  return own > 0.0 ? (squared(residual.scale()) - anywhere) / squared(own) : 1.0;
}

double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// ||f||^2 of each index of the last dimension; empty where it has no slices.
std::vector<double> squares_by_column(const Slices& slices, std::size_t dimensions) {
  std::vector<double> squares;
  if (const Slicing* const last = slices.along(dimensions - 1); last != nullptr) {
    for (const SliceSums& column : slices.of(*last)) {
      squares.push_back(column.reference_squared);
    }
  }
  return squares;
}

// The candidate's and the native pass's differences from the wide one, slice by slice.
struct Parts {
  TensorPair pair;  // with the candidate
  const Slices& candidate;
  const Slices& twin;
};

std::optional<ColumnBound> columns_of(const OperatorResidual& residual) {
  const std::vector<double>& sums = residual.sums_by_column;
  if (sums.empty() && residual.least_by_column.empty()) {
    return std::nullopt;
  }
  return ColumnBound{
      growth_of(residual, residual.anywhere + sum_of(sums)), residual.least_by_column, sums};
}

ErrorFreedom freedom_of(const Parts& parts, const std::optional<ColumnBound>& columns) {
  std::vector<double> scales;
  for (const SliceSums& slice : parts.twin.sums) {
    scales.push_back(slice.difference_squared);
  }
  const Slicing* const last = parts.twin.along(parts.pair.shape.size() - 1);
  for (std::size_t i = 0; last != nullptr && columns && i < columns->added.size(); ++i) {
    double& scale = scales[last->first + i];
    scale = columns->growth * scale + columns->added[i];
  }
  return error_freedom(parts.candidate, scales);
}

std::optional<SliceComparison> compare_slices(const OperatorResidual& residual,
                                              const Parts& parts,
                                              const ErrorSpread& spread,
                                              const ErrorFreedom& freedom,
                                              const Match& match,
                                              std::int64_t head) {
  TensorNoise noise;
  noise.mean_squared = squared(residual.own());
  noise.passes = 1;
  for (const SliceSums& slice : parts.twin.sums) {
    noise.slices.push_back(slice.difference_squared);
  }
  SliceBound bound;
  bound.noise = &noise;
  bound.growth = growth_of(residual, residual.anywhere);
  bound.added_squared = residual.anywhere;
  bound.relative_squared = squared(residual.rounding) / parts.candidate.all.reference_squared;
  bound.columns = columns_of(residual);
  bound.freedom = freedom;
  bound.spread = spread;
  return worst_slice(parts.pair, parts.candidate, {bound, match.candidate, head});
}

// Of R; see operator_check.h.
RatioLimit limit_of(const OperatorResidual& residual,
                    const ErrorSpread& spread,
                    std::int64_t elements) {
  const double freedom =
      std::min(spread.freedom, static_cast<double>(std::max<std::int64_t>(1, elements)));
  const double native = squared(residual.native);
  const double measured = residual.native > residual.rounding ? native : 0.0;
  return ratio_limit(spread.kernel_factor,
                     freedom,
                     {residual.yardstick.squared() - measured, measured, native, freedom},
                     spread.by_chance);
}

// The variance of the sum over all elements along f, if the errors of a dimension's slices are
// independent of one another.
struct VarianceAlong {
  double value = 0.0;  // 0 if no dimension has enough slices
  std::int64_t slices = 0;
};

// The largest over the dimensions. Fewer slices are too few to tell how much their errors vary.
VarianceAlong variance_along(const Slices& slices) {
  constexpr std::int64_t kFewSlices = 32;
  VarianceAlong variance;
  for (const Slicing& slicing : slices.slicings) {
    double sum = 0.0;
    for (const SliceSums& slice : slices.of(slicing)) {
      sum += squared(slice.along_reference);
    }
    if (slicing.count >= kFewSlices && sum > variance.value) {
      variance = {sum, slicing.count};
    }
  }
  return variance;
}

// The scale of a factor that all elements share. As often as a clipped gradient, the clipping norm
// goes into an element.
double factor_rounding(Kind kind, const ErrorSpread& spread) {
  constexpr int kOfClipping = 3;  // norms of shards, their sum, the quotient
  const int roundings = std::max(1, traits_of(kind).power_of_gradient * kOfClipping);
  return spread.factor_roundings * roundings * rounding_error(ElementType::kF32);
}

// Returns nothing for tensors without slices. `step`: for a tensor that an optimizer updates, unit
// times the step over the norm.
std::optional<FactorComparison> compare_factor(const OperatorResidual& residual,
                                               const Parts& parts,
                                               const std::optional<double>& step,
                                               Kind kind,
                                               const ErrorSpread& spread) {
  constexpr double kOfUpdates = 1.8;
  const Slices& twin = parts.twin;
  const SliceSums& all = parts.candidate.all;
  const VarianceAlong variance = variance_along(twin);
  if (!(variance.value > 0.0 || (step && twin.sums.size() > 1)) || !(all.reference_squared > 0.0)) {
    return std::nullopt;
  }
  const double norm_squared = all.reference_squared;
  FactorComparison result;
  result.deviation = all.along_reference / norm_squared;
  const double growth = growth_of(residual, 0.0);
  result.scale = std::sqrt((squared(twin.all.along_reference) + variance.value) * growth /
                               squared(norm_squared) +
                           squared(factor_rounding(kind, spread)) + squared(step.value_or(0.0)));
  result.least =
      spread.own_spread * std::sqrt(variance_along(parts.candidate).value) / norm_squared;
  if (!step) {
    result.ratio = ratio_limit(
        spread.kernel_factor_along, 1.0, static_cast<double>(variance.slices), spread.by_chance);
  }
  const double limit = result.ratio ? result.ratio->value : kOfUpdates;
  result.bound = std::max(limit * result.scale, result.least);
  return result;
}

}  // namespace

OperatorCheck::OperatorCheck(const ForcedTraces& traces,
                             const Trace& candidate,
                             const Allowances& allowances)
    : wide_(traces.wide),
      native_(traces.native),
      addends_(candidate),
      norms_(candidate, traces.wide),
      sums_(candidate),
      hidden_(traces.wide, candidate),
      allowances_(allowances) {
  const auto type = rounded_operands(candidate.manifest());
  if (type && allowances.has(Allowance::kRoundedProducts)) {
    of_products_ = std::numbers::sqrt2 * rounding_error(*type);
  }
  quantises_ = candidate.holds(Kind::kScale);
  first_step_ = candidate.steps().empty() ? 0 : candidate.steps().front().step;
}

bool OperatorCheck::clips_other_gradients(const TensorId& id) const {
  return traits_of(id.kind).of_update && id.kind != Kind::kMainGrad && norms_.is_of_others(id.step);
}

// The tensors of both forced passes and the candidate's.
struct OperatorCheck::Sides {
  MergeResult expected;  // f
  MergeResult twin;      // n
  Moments own;           // of n against f
  Moments error;         // of c against f
  double equal = 0.0;    // part of the elements in which c is n
};

std::vector<double> OperatorCheck::products_of(const Match& match, const Sides& sides) const {
  const std::vector<std::int64_t>& shape = sides.expected.shape;
  if (match.id.kind != Kind::kOutput || shape.empty()) {
    return {};
  }
  const auto bias = merged_values(
      native_.of({.step = match.id.step, .kind = Kind::kParam, .path = match.id.path + ".bias"}));
  if (!bias || bias->shape != std::vector{shape.back()}) {
    return {};
  }
  const Values values = values_of(sides.expected);
  std::vector<double> squares(bias->data.size());
  for (std::size_t i = 0; i < values.data.size(); ++i) {
    if (std::isfinite(values.data[i])) {
      const std::size_t column = i % squares.size();
      squares[column] += squared(values.data[i] - bias->data[column]);
    }
  }
  return squares;
}

double OperatorCheck::squared_other_grid(const Match& match, const Statistics& statistics) const {
  const bool follows_from_quantised_gradients =
      match.id.kind == Kind::kGradOutput || match.id.kind == Kind::kGradInput ||
      match.id.kind == Kind::kParamGrad || match.id.kind == Kind::kOperand ||
      sums_.is_without_addends(match.id);
  constexpr double kGrids = 2.0;  // each side's codes err on their own
  return quantises_ && follows_from_quantised_gradients
             ? kGrids * squared(rounding_error(ElementType::kE5M2)) * statistics.candidate_squared
             : 0.0;
}

std::optional<double> OperatorCheck::step_of(const Match& match,
                                             const MergeResult& candidate) const {
  const ElementType type = match.candidate.front().record->type;
  const double unit = unit_of(type);
  if (!is_updated_parameter(match.id.kind) || unit == rounding_error(type)) {
    return std::nullopt;
  }
  const std::span<const Shard> parameter = native_.of(as_kind(match.id, Kind::kParam));
  const auto step =
      parameter.empty() ? std::nullopt : statistics_where_alike(merge(parameter), candidate);
  if (!step || !(step->candidate_squared > 0.0)) {
    return std::nullopt;
  }
  return unit * step->error_norm() / std::sqrt(step->candidate_squared);
}

bool OperatorCheck::is_from_before(const TensorId& id) const {
  return id.kind == Kind::kParam && id.step == first_step_;
}

std::optional<OperatorCheck::Sides> OperatorCheck::sides_of(const Match& match,
                                                            const MergeResult& candidate,
                                                            bool with_parts) const {
  const std::span<const Shard> native = native_.of(match.id);
  std::span<const Shard> wide = wide_.of(match.id);
  if (wide.empty() && match.id.kind == Kind::kMaster) {
    wide = native;  // masters exist in low precisions alone, and are of a higher one themselves
  }
  if (wide.empty() || native.empty() || !is_floating(candidate.type) ||
      is_exact(match.id, candidate.type) || !has_own_operators(match.id.kind) ||
      is_from_before(match.id)) {
    return std::nullopt;
  }
  Sides sides{merge(wide), merge(native), {}, {}};
  set_borrowed(match.candidate, candidate, sides.expected);
  set_borrowed(match.candidate, candidate, sides.twin);
  if (sides.expected.sketch || sides.twin.sketch || !are_alike(sides.expected, sides.twin) ||
      !are_alike(sides.expected, candidate)) {
    return std::nullopt;
  }
  const std::array pairs = {summed(sides.expected, sides.twin, with_parts),
                            summed(sides.expected, candidate, with_parts),
                            summed(sides.twin, candidate)};
  std::vector<Moments> moments = moments_of(sides.expected.shape, pairs);
  sides.own = std::move(moments[0]);
  sides.error = std::move(moments[1]);
  sides.equal = equal_part(moments[2].all);
  return sides;
}

double OperatorCheck::unlike_in(const Sides& sides, const MergeResult& candidate) {
  if (sides.error.all.candidate_nonfinite == 0 && sides.error.all.reference_nonfinite == 0) {
    return 0.0;
  }
  const auto wide = unlike_in_finiteness(pair_of(sides.expected, candidate));
  const auto native = unlike_in_finiteness(pair_of(sides.twin, candidate));
  std::vector<std::int64_t> both;
  std::ranges::set_intersection(wide, native, std::back_inserter(both));
  return static_cast<double>(both.size());
}

void OperatorCheck::compare_parts(const Match& match,
                                  const Sides& sides,
                                  const TensorPair& pair,
                                  PartTerms& terms,
                                  OperatorResidual& residual) const {
  const Parts parts{pair, sides.error.slices, sides.own.slices};
  terms.freedom = freedom_of(parts, columns_of(residual));
  residual.slice = compare_slices(residual, parts, terms.spread, terms.freedom, match, terms.head);
  residual.in_noise = compare_factor(residual, parts, terms.step, match.id.kind, terms.spread);
  if (residual.in_noise) {
    residual.in_noise->granted = terms.granted;
    residual.in_noise->bound += terms.granted;
  }
}

double OperatorCheck::rounding_of(const Match& match, const std::optional<double>& step) const {
  const ElementType type = match.candidate.front().record->type;
  constexpr double kOfUpdates = 2.0;  // the decay and the step
  return step ? std::hypot(std::sqrt(kOfUpdates) * rounding_error(type), *step)
              : std::max(unit_of(type), of_products_);
}

void OperatorCheck::add_own_roundings(const Match& match,
                                      const Sides& sides,
                                      const std::vector<double>& products,
                                      OperatorResidual& residual) const {
  residual.least = residual.rounding;
  if (!products.empty() && !sums_.has(match.id)) {
    const double unit = squared(unit_of(match.candidate.front().record->type));
    residual.least = std::hypot(residual.least, std::sqrt(unit * sum_of(products)));
    residual.least_by_column = squares_by_column(sides.error.slices, sides.expected.shape.size());
    for (std::size_t i = 0; i < residual.least_by_column.size(); ++i) {
      residual.least_by_column[i] = unit * (residual.least_by_column[i] + products[i]);
    }
  }
  residual.yardstick.add(Component::kNative, squared(residual.native));
  residual.yardstick.raise_to(Component::kOperatorRounding, squared(residual.least));
}

void OperatorCheck::add_sums(const Match& match,
                             const Sides& sides,
                             const std::vector<double>& products,
                             OperatorResidual& residual) const {
  const double own = squared(residual.own());
  const double sum = products.empty() ? sides.error.all.candidate_squared : sum_of(products);
  residual.yardstick.add(Component::kRankSums, sums_.squared_rounding(match, sum, own));
  if (allowances_.has(Component::kRankSums)) {
    residual.sums_by_column = sums_.by_column(
        match,
        products.empty() ? squares_by_column(sides.error.slices, sides.expected.shape.size())
                         : products);
  }
  residual.anywhere = allowances_.granted(Allowance::kRankSums, sums_.of_ring(match.id, own));
  residual.yardstick.add(Component::kRankSums, residual.anywhere);
}

std::optional<OperatorResidual> OperatorCheck::compare(const Match& match,
                                                       const MergeResult& candidate,
                                                       const ErrorSpread& spread,
                                                       bool other_grid,
                                                       std::int64_t head) const {
  if ((hidden_.made(match.id) && allowances_.has(Allowance::kChoices)) ||
      clips_other_gradients(match.id)) {
    return std::nullopt;
  }
  // FP8 codes that flip on another grid change a few rows only, and by a few large steps.
  const bool judges_parts = !(other_grid && quantises_);
  const auto sides = sides_of(match, candidate, judges_parts);
  if (!sides) {
    return std::nullopt;
  }
  const double clipping = allowances_.granted(
      Allowance::kClippingNorm,
      traits_of(match.id.kind).power_of_gradient * norms_.rounding(match.id.step));
  OperatorResidual result;
  result.yardstick = Yardstick(allowances_);
  result.error = sides->error.all.error_norm();
  result.native = sides->own.all.error_norm();
  result.norm = sides->error.all.reference_norm();
  result.bit_equal = sides->equal;
  result.unlike = unlike_in(*sides, candidate);
  result.factor = sides->error.all.factor();
  result.native_factor = sides->own.all.factor();
  PartTerms terms{.spread = spread, .head = head, .granted = clipping};
  terms.step = step_of(match, candidate);
  terms.granted +=
      other_grid ? kLargestOverUsualRounding * unit_of(match.candidate.front().record->type) : 0.0;
  const bool rounds = allowances_.has(Allowance::kOperatorRounding);
  const double squared_norm = sides->error.all.candidate_squared;
  if (rounds) {
    result.rounding = (other_grid ? kLargestOverUsualRounding : 1.0) *
                      rounding_of(match, terms.step) * std::sqrt(squared_norm);
  }
  const std::vector<double> products = rounds ? products_of(match, *sides) : std::vector<double>();
  add_own_roundings(match, *sides, products, result);
  add_sums(match, *sides, products, result);
  result.yardstick.add(Component::kClippingNorm, squared(clipping) * squared_norm);
  result.yardstick.add(Component::kOtherGrid,
                       other_grid ? squared_other_grid(match, sides->error.all) : 0.0);
  if (result.error > 0.0 && judges_parts) {
    compare_parts(match, *sides, pair_of(sides->expected, candidate), terms, result);
  }
  ErrorSpread whole = spread;
  whole.freedom = std::max(spread.freedom, terms.freedom.whole);
  result.ratio = limit_of(result, whole, element_count(sides->expected.shape));
  addends_.compare(match, sides->expected, spread, result);
  return result;
}

}  // namespace ttrace
