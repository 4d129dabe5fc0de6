#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace ttrace {
namespace {

// A tensor seen as `slices` slices: along one dimension, or the rows of all leading dimensions.
struct Slicing {
  std::string name;  // "dimension 1", "row"
  std::int64_t slices = 0;
  std::int64_t inner = 0;   // contiguous elements of a slice
  std::int64_t repeat = 0;  // elements from one group of slices to the next
  bool rows = false;        // slices are rows [..., h]
};

std::vector<Slicing> slicings(const std::vector<std::int64_t>& shape) {
  std::vector<Slicing> result;
  std::int64_t inner = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    result.push_back(
        {"dimension " + std::to_string(dim), shape[dim], inner, inner * shape[dim], false});
    inner *= shape[dim];
  }
  if (shape.size() > 1) {
    result.push_back({"row", inner / shape.back(), shape.back(), inner, true});
  }
  return result;
}

// Of the error and of the reference, by slice.
struct Energies {
  std::vector<double> error;
  std::vector<double> reference;
};

Energies slice_energies(const Sides& sides, const Slicing& slicing) {
  const auto slices = static_cast<std::size_t>(slicing.slices);
  Energies energies{std::vector<double>(slices), std::vector<double>(slices)};
  for (std::size_t i = 0; i < sides.reference.data.size(); ++i) {
    const auto at =
        static_cast<std::size_t>(static_cast<std::int64_t>(i) % slicing.repeat / slicing.inner);
    const double r = sides.reference.data[i];
    const double d = sides.candidate.data[i] - r;
    energies.error[at] += d * d;
    energies.reference[at] += r * r;
  }
  return energies;
}

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
double most_slices(const Sides& sides, const Slicing& slicing) {
  constexpr std::int64_t kMany = 64;
  return std::ssize(sides.reference.data) / slicing.slices >= kMany ? 0.5 : 0.125;
}

// "3, 8-15, 40 and 4 more"
std::string ranges_text(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t kShown = 4;
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    if (shown++ == kShown) {
      return text + " and " + std::to_string(numbers.size() - i) + " more";
    }
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]) +
            (last > i ? "-" + std::to_string(numbers[last]) : "");
    i = last + 1;
  }
  return text;
}

bool zero_in_candidate(const Sides& sides,
                       const Slicing& slicing,
                       const std::vector<std::int64_t>& slices) {
  for (std::size_t i = 0; i < sides.candidate.data.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) % slicing.repeat / slicing.inner;
    if (sides.candidate.data[i] != 0.0 && std::binary_search(slices.begin(), slices.end(), at)) {
      return false;
    }
  }
  return true;
}

// Tokens [b, s] or [s, b] of the finding's micro-batch, in the order of its rows [s, b].
std::optional<std::vector<std::int64_t>> tokens_by_row(const Evidence& evidence,
                                                       const Values& output) {
  TensorId id = evidence.finding().id;
  if (id.kind == Kind::kParamGrad || output.shape.size() != 3) {
    return std::nullopt;
  }
  const std::int64_t s = output.shape[0];
  const std::int64_t b = output.shape[1];
  id = {.step = id.step, .microbatch = id.microbatch, .kind = Kind::kData, .path = "tokens"};
  const Match* match = evidence.find(id);
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

// Ranks that hold a slice of `slices` along `dim`, where that is not all that hold the tensor.
std::string holders_text(const Evidence& evidence,
                         std::size_t dim,
                         const std::vector<std::int64_t>& slices) {
  std::vector<int> ranks;
  for (const Shard& shard : evidence.match().candidate) {
    const std::vector<Rectangle> boxes = rectangles(shard.record->placement);
    const bool holds = std::any_of(boxes.begin(), boxes.end(), [&](const Rectangle& box) {
      const std::int64_t begin = box.logical_start.at(dim);
      const auto first = std::lower_bound(slices.begin(), slices.end(), begin);
      return first != slices.end() && *first < begin + box.extent.at(dim);
    });
    if (holds) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks.size() == evidence.match().candidate.size() ? "" : ", held by " + ranks_text(ranks);
}

}  // namespace

std::optional<Diagnosis> find_localised(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double bound = evidence.finding().comparison ? evidence.finding().comparison->bound : 0.0;
  // At most 9 % of the error's energy may lie elsewhere, however near it is to its bound.
  const double rest = std::min(std::max(bound, 0.05 * sides->error), 0.3 * sides->error);
  const std::vector<std::int64_t>& shape = sides->reference.shape;
  std::vector<std::int64_t> best;
  Slicing slicing;
  std::size_t dim = 0;
  double share = 1.0;
  for (std::size_t i = 0; const Slicing& tried : slicings(shape)) {
    const Energies energies = slice_energies(*sides, tried);
    auto slices = carriers(energies.error, rest);
    const double part = static_cast<double>(slices.size()) / static_cast<double>(tried.slices);
    // Rows come last and win a draw: they can be told by their tokens.
    if ((part < share || (tried.rows && part == share)) && part <= most_slices(*sides, tried) &&
        !hold_the_tensor(slices, energies.reference)) {
      share = part;
      best = std::move(slices);
      slicing = tried;
      dim = tried.rows ? 0 : shape.size() - 1 - i;
    }
    ++i;
  }
  if (best.empty()) {
    return std::nullopt;
  }
  std::string text = "only " + std::to_string(best.size()) + " of " +
                     std::to_string(slicing.slices) +
                     (slicing.rows ? " rows" : " slices along " + slicing.name) +
                     " carry the error: " + ranges_text(best);
  if (!slicing.rows) {
    text += holders_text(evidence, dim, best);
  }
  if (zero_in_candidate(*sides, slicing, best)) {
    text += "; the candidate is zero there";
  }
  if (slicing.rows) {
    text += tokens_text(evidence, best);
  }
  return Diagnosis{Signature::kLocalised, text};
}

}  // namespace ttrace
