// Errors that lie in a few slices only: in any, next to the edges between ranks' parts, or in a
// block that nobody wrote.
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using Indices = std::vector<std::int64_t>;  // of slices, ascending

// What a place may leave of the error elsewhere: at most 9 % of its energy, however near it is to
// its bound.
double rest_elsewhere(const Evidence& evidence, const Sides& sides) {
  return std::min(std::max(evidence.bound(), 0.05 * sides.error), 0.3 * sides.error);
}

double tolerance(const Evidence& evidence, const Sides& sides) {
  return std::min(evidence.tolerance(sides.error), rest_elsewhere(evidence, sides));
}

// Whether the tensor itself lies in these slices, as an embedding's gradient does in the rows of
// the tokens at hand: then it says nothing that the error does too.
bool hold_the_tensor(const Indices& slices, std::span<const SliceSums> sums) {
  constexpr double kAll = 0.91;
  double held = 0.0;
  double whole = 0.0;
  for (const std::int64_t slice : slices) {
    held += sums[static_cast<std::size_t>(slice)].reference_squared;
  }
  for (const SliceSums& slice : sums) {
    whole += slice.reference_squared;
  }
  return whole > 0.0 && held >= kAll * whole;
}

// The fewest slices, largest first, without which the error is within `rest`.
Indices carriers(std::span<const SliceSums> sums, double rest) {
  Indices order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  const auto energy = [&](std::int64_t slice) {
    return sums[static_cast<std::size_t>(slice)].difference_squared;
  };
  std::ranges::stable_sort(order, std::greater<>(), energy);
  // From the smallest on: what may be left out adds up to at most rest^2.
  double left_out = 0.0;
  while (!order.empty() && left_out + energy(order.back()) <= rest * rest) {
    left_out += energy(order.back());
    order.pop_back();
  }
  std::sort(order.begin(), order.end());
  return order;
}

// The largest share of slices that counts as few. Of independent elements an eighth can hold half
// of the energy by chance; slices of many elements have nearly equal energies.
double most_slices(const SliceView& view) {
  constexpr std::int64_t kMany = 64;
  return view.slice_elements() >= kMany ? 0.5 : 0.125;
}

bool zero_in_candidate(const Sides& sides, const SliceView& view, const Indices& slices) {
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (sides.candidate.data[i] != 0.0 && std::ranges::binary_search(slices, view.slice_of(i))) {
      return false;
    }
  }
  return true;
}

// Where the rows are those of a few tokens, and all of them.
struct RowsOfTokens {
  std::string text;   // "; these are all rows of token 256"
  double bits = 0.0;  // of the choice of these tokens
};

std::optional<RowsOfTokens> tokens_of(const Evidence& evidence, const Indices& rows) {
  constexpr std::size_t kFew = 4;
  const TensorId& id = evidence.finding().id;
  const std::vector<std::int64_t>& shape = evidence.sides()->shape();
  const auto tokens = id.kind == Kind::kParamGrad || shape.size() != 3
                          ? std::nullopt
                          : evidence.data_by_row(Role::kTokens, id.microbatch, shape);
  if (!tokens) {
    return std::nullopt;
  }
  std::set<std::int64_t> hit;
  for (const std::int64_t row : rows) {
    hit.insert(static_cast<std::int64_t>((*tokens)[static_cast<std::size_t>(row)]));
  }
  const auto all = std::ranges::count_if(
      *tokens, [&](double token) { return hit.contains(static_cast<std::int64_t>(token)); });
  if (hit.size() > kFew || all != std::ssize(rows)) {
    return std::nullopt;
  }
  const std::set<double> different(tokens->begin(), tokens->end());
  return RowsOfTokens{
      fmt::format("; these are all rows of token{} {}",
                  hit.size() > 1 ? "s" : "",
                  ranges_text(runs_of({hit.begin(), hit.end()}))),
      static_cast<double>(hit.size()) * bits_of_choice(static_cast<double>(different.size()))};
}

// First slices of the chunks that the candidate's ranks hold, but for slice 0.
std::set<std::int64_t> chunk_starts(const Evidence& evidence, const Slicing& slicing) {
  std::set<std::int64_t> starts;
  for (const Shard& shard : evidence.match().candidate) {
    for (const Rectangle& box : rectangles(shard.record->placement)) {
      const std::int64_t begin = box.logical_start.at(slicing.dim);
      starts.insert(begin);
      starts.insert(begin + box.extent.at(slicing.dim));
    }
  }
  starts.erase(0);
  starts.erase(slicing.count);
  return starts;
}

// The slices `width` to either side of every start; nothing where one start has no error.
Indices edges_of(std::span<const SliceSums> sums,
                 const std::set<std::int64_t>& starts,
                 std::int64_t width) {
  constexpr double kPart = 0.1;  // of an even share
  const double even = std::pow(error_outside(sums, {}), 2) /
                      static_cast<double>(std::max<std::size_t>(1, starts.size()));
  std::set<std::int64_t> near;
  for (const std::int64_t start : starts) {
    double energy = 0.0;
    const std::int64_t end = std::min(start + width, std::ssize(sums));
    for (std::int64_t at = std::max<std::int64_t>(0, start - width); at < end; ++at) {
      near.insert(at);
      energy += sums[static_cast<std::size_t>(at)].difference_squared;
    }
    if (energy <= kPart * even) {
      return {};
    }
  }
  return {near.begin(), near.end()};
}

// What a buffer may hold that nobody wrote to.
struct Filling {
  std::string name;
  std::vector<double> values;
};

std::vector<Filling> fillings(const Evidence& evidence, const Sides& sides) {
  std::vector<Filling> result = {{"zero", std::vector<double>(sides.size())}};
  const auto add = [&](const TensorId& before, const std::string& name) {
    auto values = evidence.value(before, WhichRun::kCandidate);
    if (values && values->shape == sides.shape()) {
      result.push_back({name, std::move(values->data)});
    }
  };
  TensorId before = evidence.finding().id;
  if (before.microbatch > 0) {
    --before.microbatch;
    add(before, fmt::format("what it holds for micro-batch {}, in every bit,", before.microbatch));
  }
  before = evidence.finding().id;
  --before.step;
  add(before, "what it held one step earlier, in every bit,");
  return result;
}

// Slices in which the candidate is the filling and the reference is not.
Indices untouched(const Sides& sides, const SliceView& view, const Filling& filling) {
  std::vector<bool> filled(static_cast<std::size_t>(view.size), true);
  std::vector<bool> differs(static_cast<std::size_t>(view.size));
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const auto slice = static_cast<std::size_t>(view.slice_of(i));
    filled[slice] = filled[slice] && sides.candidate.data[i] == filling.values[i];
    differs[slice] = differs[slice] || sides.reference.data[i] != filling.values[i];
  }
  Indices slices;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    if (filled[i] && differs[i]) {
      slices.push_back(static_cast<std::int64_t>(i));
    }
  }
  return slices;
}

// One run of neighbours, and not all there is; a single slice is named by localised().
bool is_block(const Indices& slices, const SliceView& view) {
  return slices.size() >= 2 && std::ssize(slices) < view.size && runs_of(slices).size() == 1;
}

std::optional<Hypothesis> localised(const Evidence& evidence,
                                    const Sides& sides,
                                    const Slicing& slicing,
                                    std::span<const SliceSums> sums) {
  const Indices slices = carriers(sums, rest_elsewhere(evidence, sides));
  const SliceView view = view_of(sides.shape(), slicing);
  const double share = static_cast<double>(slices.size()) / static_cast<double>(slicing.count);
  if (share > most_slices(view) || hold_the_tensor(slices, sums)) {
    return std::nullopt;
  }
  const auto tokens = slicing.is_of_rows() ? tokens_of(evidence, slices) : std::nullopt;
  const IndexSet runs = runs_of(slices);
  const bool zero = zero_in_candidate(sides, view, slices);
  Hypothesis found =
      about(sides,
            Signature::kLocalised,
            error_outside(sums, slices),
            fmt::format("only {} of {} {} carry the error: {}{}{}{}",
                        slices.size(),
                        slicing.count,
                        slicing.is_of_rows() ? "rows" : "slices along " + name_of(slicing),
                        ranges_text(runs),
                        slicing.is_of_rows() ? "" : holders_text(evidence, slicing.dim, slices),
                        zero ? "; the candidate is zero there" : "",
                        tokens ? tokens->text : ""));
  if (!slicing.is_of_rows()) {
    found.named.ranks = holders_of(evidence, slicing.dim, slices);
  }
  // What the elements there are is not explained, and every run of slices begins and ends
  // somewhere.
  found.coefficients = share * static_cast<double>(sides.size());
  found.bits = tokens ? tokens->bits
                      : 2.0 * static_cast<double>(runs.size()) *
                            bits_of_choice(static_cast<double>(slicing.count));
  return found;
}

Hypotheses boundary(const Evidence& evidence,
                    const Sides& sides,
                    const Slicing& slicing,
                    std::span<const SliceSums> sums) {
  constexpr std::int64_t kWidest = 4;
  const auto starts = chunk_starts(evidence, slicing);
  Hypotheses found;
  for (std::int64_t width = 1; width <= kWidest; ++width) {
    const Indices slices = edges_of(sums, starts, width);
    const double rest = error_outside(sums, slices);
    // What lies at edges must be a small part.
    if (4 * std::ssize(slices) > slicing.count || rest > tolerance(evidence, sides)) {
      continue;
    }
    found.push_back(about(
        sides,
        Signature::kBoundary,
        rest,
        fmt::format("only slices within {} of the edges between ranks' parts along {} carry the "
                    "error: edges at {}; elsewhere it is {} of {}",
                    width,
                    name_of(slicing),
                    ranges_text(runs_of({starts.begin(), starts.end()})),
                    short_number(rest),
                    short_number(sides.error))));
    found.back().coefficients =
        static_cast<double>(std::ssize(slices) * view_of(sides.shape(), slicing).slice_elements());
  }
  return chosen_of(kWidest, std::move(found));
}

std::optional<Hypothesis> untouched_block(const Evidence& evidence,
                                          const Sides& sides,
                                          const Slicing& slicing,
                                          std::span<const SliceSums> sums,
                                          const Filling& filling) {
  const SliceView view = view_of(sides.shape(), slicing);
  const Indices slices = untouched(sides, view, filling);
  const double rest = error_outside(sums, slices);
  if (!is_block(slices, view) || rest > tolerance(evidence, sides)) {
    return std::nullopt;
  }
  Hypothesis found =
      about(sides,
            Signature::kZeroBlock,
            rest,
            fmt::format("slices {} of {} along {}{}, are {} in the candidate and not in the "
                        "reference: nothing was written there",
                        ranges_text(runs_of(slices)),
                        slicing.count,
                        name_of(slicing),
                        holders_text(evidence, slicing.dim, slices),
                        filling.name));
  found.named.ranks = holders_of(evidence, slicing.dim, slices);
  found.coefficients = 2.0;  // where it begins and ends
  return found;
}

}  // namespace

Hypotheses find_place(const Evidence& evidence, const Sides& sides) {
  const std::vector<Filling> fills = fillings(evidence, sides);
  Hypotheses found;
  Hypotheses blocks;
  const Slices slices = sum_slices(sides.shape(),
                                   ElementType::kF64,
                                   sides.reference.data.data(),
                                   ElementType::kF64,
                                   sides.candidate.data.data(),
                                   SliceDetail::kAll,
                                   SliceChoice::kAll);
  for (const Slicing& slicing : last_first(slices.slicings)) {
    const auto sums = slices.of(slicing);
    append(found, localised(evidence, sides, slicing, sums));
    if (slicing.is_of_rows()) {
      continue;
    }
    append(found, boundary(evidence, sides, slicing, sums));
    for (const Filling& filling : fills) {
      append(blocks, untouched_block(evidence, sides, slicing, sums, filling));
    }
  }
  append(found, chosen_of(fills.size(), std::move(blocks)));
  return found;
}

}  // namespace ttrace
