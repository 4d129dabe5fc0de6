#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/place/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

namespace ttrace {
namespace {

// First slices along `dim` of the chunks that the candidate's ranks hold, but for slice 0.
std::set<std::int64_t> chunk_starts(const Evidence& evidence, std::size_t dim, std::int64_t size) {
  std::set<std::int64_t> starts;
  for (const Shard& shard : evidence.match().candidate) {
    for (const Rectangle& box : rectangles(shard.record->placement)) {
      const std::int64_t begin = box.logical_start.at(dim);
      starts.insert(begin);
      starts.insert(begin + box.extent.at(dim));
    }
  }
  starts.erase(0);
  starts.erase(size);
  return starts;
}

struct Edges {
  std::vector<std::int64_t> slices;  // ascending: `width` to either side of every start
  double rest = 0.0;                 // error elsewhere
  bool all_touched = true;           // every boundary has a part of the error
};

Edges edges_of(const Energies& energies, const std::set<std::int64_t>& starts, std::int64_t width) {
  std::set<std::int64_t> near;
  Edges edges;
  double whole = 0.0;
  for (const double energy : energies.error) {
    whole += energy;
  }
  for (const std::int64_t start : starts) {
    double energy = 0.0;
    for (std::int64_t at = std::max<std::int64_t>(0, start - width);
         at < std::min(start + width, std::ssize(energies.error));
         ++at) {
      near.insert(at);
      energy += energies.error[static_cast<std::size_t>(at)];
    }
    constexpr double kPart = 0.1;  // of an even share
    edges.all_touched =
        edges.all_touched && energy > kPart * whole / static_cast<double>(starts.size());
  }
  edges.slices.assign(near.begin(), near.end());
  double elsewhere = 0.0;
  for (std::size_t i = 0; i < energies.error.size(); ++i) {
    elsewhere += near.contains(static_cast<std::int64_t>(i)) ? 0.0 : energies.error[i];
  }
  edges.rest = std::sqrt(elsewhere);
  return edges;
}

}  // namespace

std::optional<Hypothesis> find_boundary(const Evidence& evidence) {
  constexpr std::int64_t kWidest = 4;
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double tolerance = std::min(evidence.tolerance(sides->error), rest_elsewhere(evidence));
  for (const NamedSlicing& slicing : named_slicings(sides->reference.shape)) {
    const auto starts = slicing.rows ? std::set<std::int64_t>()
                                     : chunk_starts(evidence, slicing.dim, slicing.view.size);
    if (starts.empty()) {
      continue;
    }
    const Energies energies = slice_energies(*sides, slicing.view);
    for (std::int64_t width = 1; width <= kWidest; ++width) {
      const Edges edges = edges_of(energies, starts, width);
      if (4 * std::ssize(edges.slices) > slicing.view.size) {
        break;  // what lies at edges is no small part
      }
      if (edges.all_touched && edges.rest <= tolerance) {
        return Hypothesis{
            .signature = Signature::kBoundary,
            .sentence = fmt::format(
                "only slices within {} of the edges between ranks' parts along {} carry the error: "
                "edges at {}; elsewhere it is {} of {}",
                width,
                slicing.name,
                ranges_text({starts.begin(), starts.end()}),
                short_number(edges.rest),
                short_number(sides->error)),
            .error = sides->error,
            .residual = edges.rest,
            .coefficients =
                static_cast<double>(std::ssize(edges.slices) * slicing.view.slice_elements()),
            .bits = bits_of_choice(static_cast<double>(kWidest))};
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
