// Slices of any number along one dimension, or rows, matched between the sides by random
// projections: E (p_k(x) - p_k(y))^2 = ||x - y||^2 for projections on random signs. Four of them
// match rows at 1 % noise without a mistake (measured); here are eight.
#include "analysis/causes/common/order_name.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kProjections = 8;
constexpr std::int64_t kFewestRows = 4;
constexpr std::int64_t kMost = 4096;

using Projection = std::array<double, kProjections>;

std::vector<Projection> project(const std::vector<double>& data, const View& view) {
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

double apart(const Projection& left, const Projection& right) {
  double squared = 0.0;
  for (std::size_t k = 0; k < kProjections; ++k) {
    squared += (left[k] - right[k]) * (left[k] - right[k]);
  }
  return squared / static_cast<double>(kProjections);
}

struct Projected {
  std::vector<Projection> candidate;
  std::vector<Projection> reference;

  [[nodiscard]] double distance(std::int64_t c, std::int64_t r) const {
    return apart(candidate[static_cast<std::size_t>(c)], reference[static_cast<std::size_t>(r)]);
  }
};

// ||c_i - r_j||^2 of slice i of the candidate and j of the reference.
double slice_distance(const Sides& sides, const View& view, std::int64_t c, std::int64_t r) {
  double squared = 0.0;
  for (std::int64_t o = 0; o < view.outer; ++o) {
    for (std::int64_t i = 0; i < view.inner; ++i) {
      const double d =
          sides.candidate.data[static_cast<std::size_t>((o * view.size + c) * view.inner + i)] -
          sides.reference.data[static_cast<std::size_t>((o * view.size + r) * view.inner + i)];
      squared += d * d;
    }
  }
  return squared;
}

// The nearest slice of the reference for each of the candidate's; of equal ones its own.
Order nearest(const Projected& projected) {
  Order order;
  const std::int64_t count = std::ssize(projected.candidate);
  for (std::int64_t c = 0; c < count; ++c) {
    std::int64_t best = c;
    double least = projected.distance(c, c);
    for (std::int64_t r = 0; r < count; ++r) {
      if (const double d = projected.distance(c, r); d < least) {
        least = d;
        best = r;
      }
    }
    order.push_back(best);
  }
  return order;
}

// The candidate's slices i that have a slice i + lag in the reference.
std::pair<std::int64_t, std::int64_t> overlap(std::int64_t count, std::int64_t lag) {
  return {std::max<std::int64_t>(0, -lag), std::min(count, count - lag)};
}

// By how many slices the reference lies ahead, at most half of them; 0 where nowhere fits better.
std::int64_t best_lag(const Projected& projected) {
  const std::int64_t count = std::ssize(projected.candidate);
  std::int64_t best = 0;
  double least = 0.0;
  for (std::int64_t lag = -count / 2; lag <= count / 2; ++lag) {
    const auto [begin, end] = overlap(count, lag);
    double mean = 0.0;
    for (std::int64_t c = begin; c < end; ++c) {
      mean += projected.distance(c, c + lag) / static_cast<double>(end - begin);
    }
    if (lag == -count / 2 || mean < least || (mean == least && lag == 0)) {
      least = mean;
      best = lag;
    }
  }
  return best;
}

// "sequence" for the dimension of the tokens of [s, b, h], else "dimension 0".
std::string name_of(const Evidence& evidence, const NamedSlicing& slicing) {
  const auto sequence = evidence.model_number("sequence");
  const bool tokens = !slicing.rows && sequence == static_cast<double>(slicing.view.size) &&
                      (slicing.dim == 0 || evidence.finding().id.kind == Kind::kData ||
                       evidence.finding().id.kind == Kind::kLoss);
  return tokens ? "sequence" : slicing.rows ? "rows" : slicing.name;
}

std::optional<Hypothesis> shifted(const Evidence& evidence,
                                  const NamedSlicing& slicing,
                                  const Projected& projected) {
  constexpr double kMuch = 0.5;  // of the error within the overlap must go
  const Sides& sides = *evidence.sides();
  const std::int64_t count = slicing.view.size;
  const std::int64_t lag = best_lag(projected);
  const auto [begin, end] = overlap(count, lag);
  double rest = 0.0;
  double error = 0.0;
  for (std::int64_t c = begin; c < end && lag != 0; ++c) {
    rest += slice_distance(sides, slicing.view, c, c + lag);
    error += slice_distance(sides, slicing.view, c, c);
  }
  rest = std::sqrt(rest);
  error = std::sqrt(error);
  if (lag == 0 || rest > kMuch * error || rest > evidence.tolerance(error)) {
    return std::nullopt;
  }
  const std::int64_t by = std::abs(lag);
  return Hypothesis{.signature = Signature::kShifted,
                    .sentence = fmt::format(
                        "{} shifted by {}: the candidate's slice i is the reference's i {} {} "
                        "for {} of {} slices; there the error falls from {} to {}",
                        name_of(evidence, slicing),
                        by,
                        lag > 0 ? "+" : "-",
                        by,
                        end - begin,
                        count,
                        short_number(error),
                        short_number(rest)),
                    .error = error,
                    .residual = rest,
                    // What came in at the other end is not explained.
                    .coefficients = static_cast<double>(by * slicing.view.slice_elements()),
                    .bits = bits_of_choice(static_cast<double>(count))};
}

std::optional<Hypothesis> reordered(const Evidence& evidence,
                                    const NamedSlicing& slicing,
                                    const Projected& projected) {
  // Among many short slices one is near to any by chance.
  constexpr std::int64_t kLong = 16;
  const Sides& sides = *evidence.sides();
  const Order order = nearest(projected);
  if (is_identity(order) || (slicing.view.slice_elements() < kLong && !is_permutation(order))) {
    return std::nullopt;
  }
  double rest = 0.0;
  for (std::int64_t c = 0; c < std::ssize(order); ++c) {
    rest += slice_distance(sides, slicing.view, c, order[static_cast<std::size_t>(c)]);
  }
  rest = std::sqrt(rest);
  if (rest > evidence.tolerance(sides.error)) {
    return std::nullopt;
  }
  const Order blocks = coarsest(order);
  const bool view = is_permutation(blocks) && interleaved_by(blocks) != 0;
  const std::string unit =
      blocks.size() == order.size() ? (slicing.rows ? "rows" : "slices") : "blocks";
  return Hypothesis{.signature = view ? Signature::kWrongView : Signature::kWrongOrder,
                    .sentence = fmt::format(
                        "{}: the candidate's {} {} are the reference's, {}; in this order the "
                        "error falls from {} to {}",
                        name_of(evidence, slicing),
                        blocks.size(),
                        unit,
                        order_name(blocks, unit),
                        short_number(sides.error),
                        short_number(rest)),
                    .error = sides.error,
                    .residual = rest,
                    .coefficients = has_name(blocks) ? 0.0 : static_cast<double>(blocks.size()),
                    .bits = bits_of_choice(static_cast<double>(slicing.view.size))};
}

// The shortest of all slicings that have enough slices, and not too many.
std::optional<Hypothesis> find_in_slices(const Evidence& evidence,
                                         std::optional<Hypothesis> (*find)(const Evidence&,
                                                                           const NamedSlicing&,
                                                                           const Projected&)) {
  const Sides* sides = evidence.sides();
  std::vector<Hypothesis> found;
  for (const NamedSlicing& slicing :
       sides == nullptr ? std::vector<NamedSlicing>() : named_slicings(sides->reference.shape)) {
    const View& view = slicing.view;
    if (view.size < kFewestRows || view.size > kMost) {
      continue;
    }
    const Projected projected{project(sides->candidate.data, view),
                              project(sides->reference.data, view)};
    if (auto one = find(evidence, slicing, projected)) {
      found.push_back(*std::move(one));
    }
  }
  return shortest(evidence, std::move(found));
}

}  // namespace

std::optional<Hypothesis> find_shift(const Evidence& evidence) {
  return find_in_slices(evidence, shifted);
}

std::optional<Hypothesis> find_order_of_rows(const Evidence& evidence) {
  return find_in_slices(evidence, reordered);
}

}  // namespace ttrace
