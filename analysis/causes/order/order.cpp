// Slices of the reference in other places: equal blocks along a dimension, of the whole tensor or
// of each rank's part, single slices, rows, all of them some places further on, and all elements
// where dimensions stand in another order.
//
// More slices than a few are matched by random projections: E (p_k(x) - p_k(y))^2 = ||x - y||^2 for
// projections on random signs. Four of them match rows at 1 % noise without a mistake (measured);
// here are eight.
#include "analysis/align/model_numbers.h"
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/order_name.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/random.h"
#include "trace/file/record.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kFewSlices = 16;  // slices whose elements are compared
constexpr std::int64_t kFewestShifted = 4;
constexpr std::int64_t kMostCuts = 4096;
constexpr std::size_t kProjections = 8;

using Projection = std::array<double, kProjections>;

std::vector<Projection> project(const std::vector<double>& data, const SliceView& view) {
  std::vector<Projection> result(static_cast<std::size_t>(view.size));
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    const std::int64_t within =
        position / (view.inner * view.size) * view.inner + position % view.inner;
    const std::uint64_t signs = random_bits(static_cast<std::uint64_t>(within));
    Projection& of_slice = result[static_cast<std::size_t>(view.slice_of(i))];
    for (std::size_t k = 0; k < kProjections; ++k) {
      of_slice[k] += (signs >> k & 1U) != 0 ? data[i] : -data[i];
    }
  }
  return result;
}

// Squared distance of the candidate's slice `c` from the reference's slice `r`.
using SliceDistance = std::function<double(std::int64_t c, std::int64_t r)>;

SliceDistance by_projections(const Sides& sides, const SliceView& view) {
  return [candidate = project(sides.candidate.data, view),
          reference = project(sides.reference.data, view)](std::int64_t c, std::int64_t r) {
    double squared = 0.0;
    for (std::size_t k = 0; k < kProjections; ++k) {
      const double d =
          candidate[static_cast<std::size_t>(c)][k] - reference[static_cast<std::size_t>(r)][k];
      squared += d * d;
    }
    return squared / static_cast<double>(kProjections);
  };
}

// Over every `stride`th element.
SliceDistance by_elements(const Sides& sides, const SliceView& view, std::int64_t stride = 1) {
  return [&sides, view, stride](std::int64_t c, std::int64_t r) {
    double squared = 0.0;
    for (std::int64_t i = 0; i < view.slice_elements(); i += stride) {
      const std::int64_t at = i / view.inner * view.size * view.inner + i % view.inner;
      const double d = sides.candidate.data[static_cast<std::size_t>(at + c * view.inner)] -
                       sides.reference.data[static_cast<std::size_t>(at + r * view.inner)];
      squared += d * d;
    }
    return squared;
  };
}

// Blocks of neighbouring slices. Requires: `count` divides the view's.
SliceView in_blocks(const SliceView& view, std::int64_t count) {
  return {view.outer, count, view.size / count * view.inner};
}

// The nearest slice of the reference for each of the candidate's; of equal ones its own.
Order nearest(const Sides& sides, const SliceView& view) {
  constexpr std::int64_t kSampled = 4096;
  // Odd, so that a power of two between rows does not pick one column only.
  const std::int64_t stride = std::max<std::int64_t>(1, view.slice_elements() / kSampled) | 1;
  const SliceDistance distance =
      view.size > kFewSlices ? by_projections(sides, view) : by_elements(sides, view, stride);
  Order order;
  for (std::int64_t c = 0; c < view.size; ++c) {
    std::int64_t best = c;
    double least = distance(c, c);
    for (std::int64_t r = 0; r < view.size; ++r) {
      if (const double d = distance(c, r); d < least) {
        least = d;
        best = r;
      }
    }
    order.push_back(best);
  }
  return order;
}

double error_in(const Order& order, const Sides& sides, const SliceView& view) {
  const SliceDistance distance = by_elements(sides, view);
  double squared = 0.0;
  for (std::int64_t c = 0; c < std::ssize(order); ++c) {
    squared += distance(c, order[static_cast<std::size_t>(c)]);
  }
  return std::sqrt(squared);
}

// What an order costs: nothing where a few words say it.
double free_numbers(const Order& order) {
  return has_name(order) ? 0.0 : static_cast<double>(order.size());
}

// "sequence" for the dimension of the tokens of [s, b, h], else "dimension 0".
std::string name_of(const Evidence& evidence, const Slicing& slicing) {
  const Kind kind = evidence.finding().id.kind;
  const bool tokens =
      !slicing.is_of_rows() &&
      evidence.model_number(model_keys::kSequence) == static_cast<double>(slicing.count) &&
      (slicing.dim == 0 || kind == Kind::kData || kind == Kind::kLoss);
  return tokens ? "sequence" : name_of(slicing);
}

// What `count` of the finding's slices are: heads, query groups, blocks of slices, slices.
std::string unit_of(const Evidence& evidence, const Slicing& slicing, std::size_t count) {
  const bool attention = evidence.vocabulary().is(Role::kAttention, evidence.finding().id.path);
  for (const auto& [key, unit] :
       {std::pair(model_keys::kHeads, "heads"), {model_keys::kQueryGroups, "query groups"}}) {
    if (attention && evidence.model_number(key) == static_cast<double>(count)) {
      return unit;
    }
  }
  const bool single = static_cast<std::int64_t>(count) == slicing.count;
  return !single ? "blocks" : slicing.is_of_rows() ? "rows" : "slices";
}

std::optional<Hypothesis> reordered(const Evidence& evidence,
                                    const Sides& sides,
                                    const Slicing& slicing,
                                    std::int64_t count) {
  // Among many short slices one is near to any by chance, and among few single numbers as well.
  const std::int64_t fewest = count > kFewSlices ? 16 : 2;
  const SliceView view = in_blocks(view_of(sides.shape(), slicing), count);
  const Order order = nearest(sides, view);
  if (is_identity(order) || (view.slice_elements() < fewest && !is_permutation(order))) {
    return std::nullopt;
  }
  const double rest = error_in(order, sides, view);
  if (!evidence.explains(rest)) {
    return std::nullopt;
  }
  const Order blocks = coarsest(order);
  const std::string unit = unit_of(evidence, slicing, blocks.size());
  const std::string axis = axis_of_size(evidence, static_cast<double>(blocks.size()));
  const bool listed = std::ssize(blocks) <= kFewSlices;
  Hypothesis found =
      about(sides,
            is_interleaved(blocks) ? Signature::kWrongView : Signature::kWrongOrder,
            rest,
            fmt::format("along {} the candidate's {} {} are the reference's{}{}: {}; in this order "
                        "{}",
                        name_of(evidence, slicing),
                        blocks.size(),
                        unit,
                        listed ? " " + index_text(blocks) : "",
                        axis.empty() ? "" : ", as many as " + axis + " has ranks",
                        order_name(blocks, unit),
                        fall_text(sides.error, rest)));
  if (!axis.empty()) {
    found.named.axes = {axis};
  }
  found.coefficients = free_numbers(blocks);
  found.bits = bits_of_choice(static_cast<double>(blocks.size() * sides.shape().size()));
  return found;
}

// The candidate's slices i that have a slice i + lag in the reference.
std::pair<std::int64_t, std::int64_t> overlap(std::int64_t count, std::int64_t lag) {
  return {std::max<std::int64_t>(0, -lag), std::min(count, count - lag)};
}

// By how many slices the reference lies ahead, at most half of them; 0 where nowhere fits better.
std::int64_t best_lag(const Sides& sides, const SliceView& view) {
  const SliceDistance distance = by_projections(sides, view);
  std::int64_t best = 0;
  double least = HUGE_VAL;
  for (std::int64_t lag = -view.size / 2; lag <= view.size / 2; ++lag) {
    const auto [begin, end] = overlap(view.size, lag);
    double mean = 0.0;
    for (std::int64_t c = begin; c < end; ++c) {
      mean += distance(c, c + lag) / static_cast<double>(end - begin);
    }
    if (mean < least || (mean == least && lag == 0)) {
      least = mean;
      best = lag;
    }
  }
  return best;
}

std::optional<Hypothesis> shifted(const Evidence& evidence,
                                  const Sides& sides,
                                  const Slicing& slicing) {
  constexpr double kMuch = 0.5;  // of the error within the overlap must go
  const SliceView view = view_of(sides.shape(), slicing);
  const std::int64_t count = slicing.count;
  const std::int64_t lag = best_lag(sides, view);
  const auto [begin, end] = overlap(count, lag);
  const SliceDistance distance = by_elements(sides, view);
  double rest = 0.0;
  double error = 0.0;
  for (std::int64_t c = begin; c < end && lag != 0; ++c) {
    rest += distance(c, c + lag);
    error += distance(c, c);
  }
  rest = std::sqrt(rest);
  error = std::sqrt(error);
  if (lag == 0 || rest > kMuch * error || rest > evidence.tolerance(error)) {
    return std::nullopt;
  }
  const std::int64_t by = std::abs(lag);
  return Hypothesis{
      .signature = Signature::kShifted,
      .sentence = fmt::format("{} shifted by {}: the candidate's slice i is the reference's i {} "
                              "{} for {} of {} slices; there {}",
                              name_of(evidence, slicing),
                              by,
                              lag > 0 ? "+" : "-",
                              by,
                              end - begin,
                              count,
                              fall_text(error, rest)),
      .error = error,
      .residual = rest,
      // What came in at the other end is not explained.
      .coefficients = static_cast<double>(by * view.slice_elements()),
      .bits = bits_of_choice(static_cast<double>(count))};
}

// "rank 0 has blocks [0, 0], rank 1 has blocks [1, 1]"
std::string orders_text(const std::vector<RankPart>& parts, const std::vector<Order>& orders) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kShown); ++i) {
    text += fmt::format(
        "{}rank {} has blocks {}", i == 0 ? "" : ", ", parts[i].rank(), index_text(orders[i]));
  }
  return text + (parts.size() > kShown ? ", ..." : "");
}

// Every rank has blocks of its own part in an order of its own: what was gathered, or sent, came
// from elsewhere than it should.
std::optional<Hypothesis> by_rank(const Evidence& evidence,
                                  const std::vector<RankPart>& parts,
                                  std::size_t dim,
                                  const std::string& axis) {
  const std::int64_t blocks = evidence.axis_size(axis);
  double rest = 0.0;
  double error = 0.0;
  double coefficients = 0.0;
  std::vector<Order> orders;
  for (const RankPart& part : parts) {
    const SliceView whole = view_along(part.sides.shape(), dim);
    if (blocks > kFewSlices || whole.size % blocks != 0) {
      return std::nullopt;
    }
    const SliceView view = in_blocks(whole, blocks);
    orders.push_back(nearest(part.sides, view));
    rest = std::hypot(rest, error_in(orders.back(), part.sides, view));
    error = std::hypot(error, part.sides.error);
    coefficients += free_numbers(orders.back());
  }
  if (std::ranges::all_of(orders, [](const Order& order) { return is_identity(order); }) ||
      rest > evidence.tolerance(error)) {
    return std::nullopt;
  }
  const std::vector<std::string> alike = axes_in(evidence, static_cast<double>(blocks));
  return Hypothesis{.signature = Signature::kWrongOrder,
                    .sentence = fmt::format(
                        "what was gathered or sent along dimension {} is not in the order of the "
                        "ranks of {}: of {} blocks of its part in the reference {}; in this order "
                        "{}",
                        dim,
                        fmt::join(alike, " or "),
                        blocks,
                        orders_text(parts, orders),
                        fall_text(error, rest)),
                    .named = {.axes = {axis}},
                    .error = error,
                    .residual = rest,
                    .coefficients = coefficients};
}

// Dimension i of the result is dimension axes[i] of `values`.
Values transposed(const Values& values, const std::vector<std::int64_t>& axes) {
  const std::size_t count = axes.size();
  std::vector<std::size_t> strides(count, 1);
  for (std::size_t i = count; i-- > 1;) {
    strides[i - 1] = strides[i] * static_cast<std::size_t>(values.shape[i]);
  }
  Values result{std::vector<std::int64_t>(count), std::vector<double>(values.data.size())};
  for (std::size_t i = 0; i < count; ++i) {
    result.shape[i] = values.shape[static_cast<std::size_t>(axes[i])];
  }
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    std::size_t rest = i;
    std::size_t from = 0;
    for (std::size_t dim = count; dim-- > 0;) {
      const auto size = static_cast<std::size_t>(result.shape[dim]);
      from += rest % size * strides[static_cast<std::size_t>(axes[dim])];
      rest /= size;
    }
    result.data[i] = values.data[from];
  }
  return result;
}

}  // namespace

Hypotheses find_order(const Evidence& evidence, const Sides& sides) {
  Hypotheses found;
  for (const Slicing& slicing : last_first(slicings_of(sides.shape(), SliceChoice::kAll))) {
    for (std::int64_t blocks = 2; blocks <= kFewSlices; ++blocks) {
      if (slicing.count % blocks == 0) {
        append(found, reordered(evidence, sides, slicing, blocks));
      }
    }
    if (slicing.count > kFewSlices && slicing.count <= kMostCuts) {
      append(found, reordered(evidence, sides, slicing, slicing.count));
    }
    if (slicing.count >= kFewestShifted && slicing.count <= kMostCuts) {
      append(found, shifted(evidence, sides, slicing));
    }
  }
  const std::vector<RankPart> parts = rank_parts(evidence.match().candidate, sides.reference);
  for (const std::string& axis : parts.size() < 2 ? std::vector<std::string>() : evidence.axes()) {
    for (std::size_t dim = 0; dim < sides.shape().size(); ++dim) {
      append(found, by_rank(evidence, parts, dim, axis));
    }
  }
  return found;
}

Hypotheses find_transposed(const Evidence& evidence) {
  constexpr std::size_t kMostDimensions = 4;
  const Sides* const sides = evidence.sides();
  const auto reference = evidence.reference(&evidence.match());
  auto candidate = evidence.candidate(&evidence.match());
  const bool differs = sides != nullptr || evidence.finding().symptom() == Symptom::kShapesDiffer;
  if (!differs || !reference || !candidate || reference->data.size() != candidate->data.size() ||
      reference->shape.size() < 2 || reference->shape.size() > kMostDimensions) {
    return {};
  }
  // Sides that do not lie side by side are all error.
  const double error = sides != nullptr ? sides->error : reference->norm();
  const double allowed = sides != nullptr ? evidence.tolerance(error) : allowed_rest(error, 0.0);
  const std::string claimed = shape_text(candidate->shape);
  std::vector<std::int64_t> axes(reference->shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::size_t orders = 0;
  Hypotheses found;
  do {
    ++orders;
    const Values other = transposed(*reference, axes);
    candidate->shape = other.shape;  // the bytes decide, whatever shape they were given
    const double rest = distance(*candidate, other);
    if ((std::ranges::is_sorted(axes) && sides != nullptr) || rest > allowed) {
      continue;
    }
    found.push_back({.signature = Signature::kWrongView,
                     .sentence = fmt::format("the candidate's {} is the reference's {} with its "
                                             "dimensions in the order {}, read as if they were not "
                                             "(difference {})",
                                             claimed,
                                             shape_text(reference->shape),
                                             index_text(axes),
                                             short_number(rest)),
                     .error = error,
                     .residual = rest});
  } while (std::ranges::next_permutation(axes).found);
  return chosen_of(orders, std::move(found));
}

}  // namespace ttrace
