#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace ttrace {
namespace {

// Whether the tensor itself lies in these slices, as an embedding's gradient does in the rows of
// the tokens at hand: then it says nothing that the error does too.
bool hold_the_tensor(const std::vector<std::int64_t>& slices, const std::vector<double>& energies) {
  constexpr double kAll = 0.91;
  double held = 0.0;
  for (const std::int64_t slice : slices) {
    held += energies[static_cast<std::size_t>(slice)];
  }
  const double whole = std::accumulate(energies.begin(), energies.end(), 0.0);
  return whole > 0.0 && held >= kAll * whole;
}

// The fewest slices, largest first, without which the error is within `rest`; ascending.
std::vector<std::int64_t> carriers(const std::vector<double>& energies, double rest) {
  std::vector<std::int64_t> order(energies.size());
  std::iota(order.begin(), order.end(), 0);
  const auto energy = [&](std::int64_t slice) { return energies[static_cast<std::size_t>(slice)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t left, std::int64_t right) {
    return energy(left) > energy(right);
  });
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
double most_slices(const NamedSlicing& slicing) {
  constexpr std::int64_t kMany = 64;
  return slicing.view.slice_elements() >= kMany ? 0.5 : 0.125;
}

bool zero_in_candidate(const Sides& sides,
                       const NamedSlicing& slicing,
                       const std::vector<std::int64_t>& slices) {
  for (std::size_t i = 0; i < sides.candidate.data.size(); ++i) {
    const std::int64_t at = slicing.view.slice_of(i);
    if (sides.candidate.data[i] != 0.0 && std::binary_search(slices.begin(), slices.end(), at)) {
      return false;
    }
  }
  return true;
}

// Tokens [b, s] or [s, b] of the finding's micro-batch, in the order of its rows [s, b].
std::optional<std::vector<std::int64_t>> tokens_by_row(const Evidence& evidence,
                                                       const Values& output) {
  const TensorId& id = evidence.finding().id;
  if (id.kind == Kind::kParamGrad || output.shape.size() != 3) {
    return std::nullopt;
  }
  const std::int64_t s = output.shape[0];
  const std::int64_t b = output.shape[1];
  const Match* match = evidence.data(Role::kTokens, id.microbatch);
  const auto tokens = match == nullptr ? std::nullopt : evidence.reference(*match);
  if (!tokens || tokens->shape != std::vector<std::int64_t>{b, s}) {
    return std::nullopt;
  }
  std::vector<std::int64_t> rows;
  for (std::int64_t position = 0; position < s; ++position) {
    for (std::int64_t sample = 0; sample < b; ++sample) {
      rows.push_back(
          static_cast<std::int64_t>(tokens->data[static_cast<std::size_t>(sample * s + position)]));
    }
  }
  return rows;
}

// "; these are all rows of token 256": where the rows are those of a few tokens, and all of them.
std::string tokens_text(const Evidence& evidence, const std::vector<std::int64_t>& rows) {
  constexpr std::size_t kFew = 4;
  const auto tokens = tokens_by_row(evidence, evidence.sides()->reference);
  if (!tokens) {
    return "";
  }
  std::set<std::int64_t> hit;
  for (const std::int64_t row : rows) {
    hit.insert((*tokens)[static_cast<std::size_t>(row)]);
  }
  const auto all = std::count_if(
      tokens->begin(), tokens->end(), [&](std::int64_t token) { return hit.contains(token); });
  if (hit.size() > kFew || all != std::ssize(rows)) {
    return "";
  }
  return std::string("; these are all rows of token") + (hit.size() > 1 ? "s " : " ") +
         ranges_text({hit.begin(), hit.end()});
}

}  // namespace

std::optional<Hypothesis> find_localised(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double rest = rest_elsewhere(evidence);
  std::vector<std::int64_t> best;
  NamedSlicing slicing;
  double share = 1.0;
  for (const NamedSlicing& tried : named_slicings(sides->reference.shape)) {
    const Energies energies = slice_energies(*sides, tried.view);
    auto slices = carriers(energies.error, rest);
    const double part = static_cast<double>(slices.size()) / static_cast<double>(tried.view.size);
    // Rows come last and win a draw: they can be named by their tokens.
    if ((part < share || (tried.rows && part == share)) && part <= most_slices(tried) &&
        !hold_the_tensor(slices, energies.reference)) {
      share = part;
      best = std::move(slices);
      slicing = tried;
    }
  }
  if (best.empty()) {
    return std::nullopt;
  }
  const bool zero = zero_in_candidate(*sides, slicing, best);
  return Hypothesis{
      .signature = Signature::kLocalised,
      .sentence = fmt::format("only {} of {} {} carry the error: {}{}{}{}",
                              best.size(),
                              slicing.view.size,
                              slicing.rows ? "rows" : "slices along " + slicing.name,
                              ranges_text(best),
                              slicing.rows ? "" : holders_text(evidence, slicing.dim, best),
                              zero ? "; the candidate is zero there" : "",
                              slicing.rows ? tokens_text(evidence, best) : ""),
      .named = {.ranks =
                    slicing.rows ? std::vector<int>() : holders_of(evidence, slicing.dim, best)},
      .error = sides->error,
      .residual = error_outside(slice_energies(*sides, slicing.view), best),
      // What the elements there are is not explained, and every run of slices begins and ends
      // somewhere.
      .coefficients = share * static_cast<double>(sides->reference.data.size()),
      .bits = 2.0 * static_cast<double>(runs_of(best)) *
              bits_of_choice(static_cast<double>(slicing.view.size))};
}

}  // namespace ttrace
