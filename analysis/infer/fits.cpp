#include "analysis/infer/fits.h"

#include "analysis/findings/wording.h"
#include "analysis/infer/samples.h"
#include "trace/file/record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <utility>

namespace ttrace {
namespace {

// `b` would mean samples, which noise passes permute.
constexpr std::string_view kNames = "acdefghijklmnopqrstuvwxyz";
// Errors below it are those of the last bits: equal.
constexpr double kEqual = 3e-8;
// A tensor of zeros decides nothing, so only some placements are kept.
constexpr std::size_t kMostFits = 512;
// An error above it explains less than half of the values' energy.
constexpr double kNoSignal = 0.7;
// While few elements are compared, nothing below it is given up.
constexpr double kUndecided = 0.25;
constexpr std::array<std::size_t, 3> kStages{32, 256, 4096};  // elements compared of every rank

// Above it an error is worse than the best one, `best`, by more than chance: `points` elements were
// compared.
double error_limit(double best, std::int64_t points) {
  const double factor =
      1.15 + 6.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(points, 1)));
  return std::max(kEqual, factor * best);
}

// Holders whose values are added: of `region` axes they have one place, of `summed` every one. One
// group per copy.
std::vector<std::vector<std::size_t>> groups_of(const Holders& holders,
                                                AxisSet region,
                                                AxisSet summed) {
  // By place in the region: the holders of every addend, by rank.
  std::map<int, std::vector<std::vector<std::size_t>>> addends;
  for (std::size_t holder = 0; holder < holders.count(); ++holder) {
    auto& parts = addends[holders.place(region, holder)];
    parts.resize(static_cast<std::size_t>(holders.combinations(summed)));
    parts[static_cast<std::size_t>(holders.place(summed, holder))].push_back(holder);
  }
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& [place, parts] : addends) {
    for (std::size_t copy = 0; copy < parts.front().size(); ++copy) {
      std::vector<std::size_t>& group = groups.emplace_back();
      for (const std::vector<std::size_t>& part : parts) {
        group.push_back(part[copy]);
      }
    }
  }
  return groups;
}

// One way to cut every dimension, and the axes summed over.
struct Hypothesis {
  std::vector<const Cut*> cuts;  // by dimension
  AxisSet cutting = 0;
  AxisSet summed = 0;
  Agreement agreement = {};
};

using Cuts = std::vector<std::shared_ptr<const std::vector<Cut>>>;  // by dimension

Cuts cuts_of(std::span<const std::vector<std::int64_t>> locals,
             std::span<const std::int64_t> logical,
             const Holders& holders,
             CutTable& table) {
  Cuts cuts;
  for (std::size_t dim = 0; dim < logical.size(); ++dim) {
    std::vector<std::int64_t> sizes;
    for (const std::vector<std::int64_t>& local : locals) {
      sizes.push_back(local[dim]);
    }
    cuts.push_back(table.get(logical[dim], sizes, holders));
  }
  return cuts;
}

// Every combination of cuts whose axes go together.
void combine(const Cuts& cuts,
             const Holders& holders,
             Hypothesis& begun,
             std::vector<Hypothesis>& all) {
  if (begun.cuts.size() == cuts.size()) {
    all.push_back(begun);
    return;
  }
  for (const Cut& cut : *cuts[begun.cuts.size()]) {
    if ((begun.cutting & cut.axes) != 0 || !holders.independent(begun.cutting | cut.axes)) {
      continue;
    }
    begun.cuts.push_back(&cut);
    begun.cutting |= cut.axes;
    combine(cuts, holders, begun, all);
    begun.cutting &= ~cut.axes;
    begun.cuts.pop_back();
  }
}

// The same with every set of axes to sum over; a scalar has no dimension to say it on.
std::vector<Hypothesis> hypotheses_of(const Cuts& cuts, const Holders& holders) {
  std::vector<Hypothesis> regions;
  Hypothesis begun;
  combine(cuts, holders, begun, regions);
  std::vector<Hypothesis> all;
  for (const Hypothesis& region : regions) {
    for (const AxisSet summed : holders.free_sets(region.cutting)) {
      if (summed == 0 || !cuts.empty()) {
        all.push_back(region);
        all.back().summed = summed;
      }
    }
  }
  return all;
}

DimsSpec spec_of(const Hypothesis& hypothesis, const Holders& holders, bool with_sums) {
  DimsSpec dims;
  std::size_t name = 0;
  for (const Cut* cut : hypothesis.cuts) {
    dims.dims.push_back(cut->factors);
    for (DimFactor& factor : dims.dims.back()) {
      if (!factor.name.empty()) {
        factor.name = kNames[std::min(name++, kNames.size() - 1)];
      }
    }
  }
  if (!with_sums || hypothesis.summed == 0) {
    return dims;
  }
  // It may stand on any dimension; the first that is not cut reads best.
  auto dim = std::ranges::find_if(hypothesis.cuts, [](const Cut* cut) { return cut->axes == 0; }) -
             hypothesis.cuts.begin();
  dim = dim == std::ssize(dims.dims) ? 0 : dim;
  for (std::size_t axis = 0; axis < holders.axes().size(); ++axis) {
    if ((hypothesis.summed >> axis & 1U) != 0) {
      dims.dims[static_cast<std::size_t>(dim)].back().axes.push_back(
          {holders.axes()[axis].name, Sharding::kPartial});
    }
  }
  return dims;
}

// A factor that is not declared is the last thing to be believed.
int complexity_of(const Hypothesis& hypothesis, double factor) {
  int complexity = 20 * std::popcount(hypothesis.summed) + (factor == 1.0 ? 0 : 1000);
  for (const Cut* cut : hypothesis.cuts) {
    complexity += cut->complexity;
  }
  return complexity;
}

Agreement compare(const Samples& samples,
                  const Hypothesis& hypothesis,
                  const Holders& holders,
                  std::size_t limit) {
  PlaceClaim claim{{}, groups_of(holders, hypothesis.cutting, hypothesis.summed)};
  if (!samples.can_add(claim.groups)) {
    return {};
  }
  for (std::size_t holder = 0; holder < holders.count(); ++holder) {
    std::vector<const DimPlacement*>& dims = claim.dims.emplace_back();
    for (const Cut* cut : hypothesis.cuts) {
      dims.push_back(&cut->parts[holder]);
    }
  }
  return samples.compare(claim, limit);
}

// The largest distance of the best factor from the true one: noise of relative size e in the values
// reduces it by about e^2 and moves it by e / sqrt(n).
double factor_tolerance(const Agreement& agreement) {
  const double error = agreement.error;
  const double chance = 3.0 * error / std::sqrt(static_cast<double>(agreement.points));
  return std::clamp(std::max(std::min(0.05, error), 1.5 * error * error + chance), 1e-4, 0.3);
}

// The factor that people would have written: 1, or what averages over ranks make.
double plain_factor(const Agreement& agreement, const Holders& holders) {
  if (agreement.error_as_is <= 1.1 * agreement.error + kEqual) {
    return 1.0;
  }
  const double tolerance = factor_tolerance(agreement);
  for (AxisSet set = 0; set < AxisSet{1} << holders.axes().size(); ++set) {
    const double count = holders.combinations(set);
    for (const double plain : {1.0 / count, count}) {
      if (std::abs(agreement.factor / plain - 1.0) <= tolerance) {
        return plain;
      }
    }
  }
  return agreement.factor;
}

// Whether `average` explains no more than `other` of the same region. Equal copies are their own
// average, and averaging brings them nearer to the reference by the round-off that it removes. A
// sum that needs no factor is not an average.
bool is_average_of(const Hypothesis& average, const Hypothesis& other, const Holders& holders) {
  if (other.summed == average.summed || (other.summed & ~average.summed) != 0 ||
      (plain_factor(average.agreement, holders) == 1.0 && !average.agreement.both_zero &&
       plain_factor(other.agreement, holders) != 1.0)) {
    return false;
  }
  const double copies = static_cast<double>(holders.combinations(average.summed)) /
                        holders.combinations(other.summed);
  const double factor = average.agreement.factor / other.agreement.factor * copies;
  return std::abs(factor - 1.0) <= factor_tolerance(other.agreement) &&
         other.agreement.error <= kEqual + 2.0 * std::sqrt(copies) * average.agreement.error;
}

// Requires: hypotheses of one region stand side by side.
void drop_averages(const Holders& holders, std::vector<Hypothesis>& hypotheses) {
  std::vector<Hypothesis> kept;
  for (auto first = hypotheses.begin(); first != hypotheses.end();) {
    const auto end = std::find_if(first, hypotheses.end(), [&](const Hypothesis& other) {
      return other.cuts != first->cuts;
    });
    std::copy_if(first, end, std::back_inserter(kept), [&](const Hypothesis& average) {
      return std::none_of(first, end, [&](const Hypothesis& other) {
        return is_average_of(average, other, holders);
      });
    });
    first = end;
  }
  hypotheses = std::move(kept);
}

// Compares more and more elements of fewer and fewer hypotheses.
void keep_those_that_fit(const Samples& samples,
                         const Holders& holders,
                         bool any_factor,
                         std::vector<Hypothesis>& hypotheses) {
  for (const std::size_t stage : kStages) {
    for (Hypothesis& hypothesis : hypotheses) {
      Agreement& agreement = hypothesis.agreement;
      agreement = compare(samples, hypothesis, holders, stage);
      if (!any_factor) {
        agreement.error = agreement.error_as_is;
        agreement.factor = 1.0;
      }
    }
    drop_averages(holders, hypotheses);
    double best = std::numeric_limits<double>::infinity();
    for (const Hypothesis& hypothesis : hypotheses) {
      best = std::min(best, hypothesis.agreement.error);
    }
    const bool last = stage == kStages.back();
    std::erase_if(hypotheses, [&](const Hypothesis& hypothesis) {
      const Agreement& agreement = hypothesis.agreement;
      const double limit = error_limit(best, agreement.points);
      // Few elements prove little: a placement that disagrees only later must not replace one that
      // agrees throughout.
      return !(agreement.error <= (last ? limit : std::max(kUndecided, 3.0 * limit)));
    });
  }
}

std::vector<std::vector<std::int64_t>> local_shapes(std::span<const Shard> shards) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Shard& shard : shards) {
    shapes.push_back(shard.record->shape);
  }
  return shapes;
}

// Requires: segments within the dimension.
DimPlacement part_of(const DimPlacement& dim, FlatRange range) {
  DimPlacement part{range.count, dim.logical_size, {}};
  for (const Segment& segment : dim.segments) {
    const std::int64_t begin = std::max(segment.local, range.first);
    const std::int64_t end = std::min(segment.local + segment.extent, range.first + range.count);
    if (begin < end) {
      part.segments.push_back(
          {begin - range.first, segment.logical + begin - segment.local, end - begin});
    }
  }
  return part;
}

// "64x128: 32x128, 32x128".
std::string sizes_text(std::span<const Shard> shards, const std::vector<std::int64_t>& logical) {
  std::string text = shape_text(logical);
  for (const Shard& shard : shards) {
    text += (text.find(':') == std::string::npos ? ": " : ", ") + shape_text(shard.record->shape);
  }
  return text;
}

bool same_dims(const Placement& left, const Placement& right) {
  return left.dims == right.dims && left.flat == right.flat &&
         left.partial_count == right.partial_count;
}

}  // namespace

bool has_signal(double error) {
  return error < kNoSignal;
}

TensorFits fits_of(std::span<const Shard> shards,
                   const MergeResult& reference,
                   const Holders& holders,
                   CutTable& table) {
  const bool ranks_agree = std::ranges::all_of(shards, [&](const Shard& shard) {
    return shard.record->shape.size() == reference.shape.size();
  });
  TensorFits result;
  result.sizes = sizes_text(shards, reference.shape);
  if (!ranks_agree) {
    return result;
  }
  const Cuts cuts = cuts_of(local_shapes(shards), reference.shape, holders, table);
  std::vector<Hypothesis> hypotheses = hypotheses_of(cuts, holders);
  result.possible = hypotheses.size();
  const Samples samples(shards, reference);
  keep_those_that_fit(samples, holders, is_floating(shards.front().record->type), hypotheses);
  result.error = std::numeric_limits<double>::infinity();
  for (const Hypothesis& hypothesis : hypotheses) {
    const double factor = plain_factor(hypothesis.agreement, holders);
    result.fits.push_back({to_string(spec_of(hypothesis, holders, true)),
                           to_string(spec_of(hypothesis, holders, false)),
                           complexity_of(hypothesis, factor),
                           hypothesis.agreement.error,
                           factor});
    result.error = std::min(result.error, hypothesis.agreement.error);
  }
  std::ranges::stable_sort(result.fits, {}, &PlacementFit::complexity);
  result.fits.resize(std::min(result.fits.size(), kMostFits));
  return result;
}

std::string dims_text(std::span<const Placement> placements,
                      const Holders& holders,
                      CutTable& table) {
  if (placements.front().flat || placements.front().dims.empty()) {
    return "";
  }
  std::vector<std::vector<std::int64_t>> locals;
  for (const Placement& placement : placements) {
    locals.push_back(placement.local_shape());
  }
  const std::vector<std::int64_t> logical = placements.front().logical_shape();
  const Cuts cuts = cuts_of(locals, logical, holders, table);
  for (const Hypothesis& hypothesis : hypotheses_of(cuts, holders)) {
    const DimsSpec spec = spec_of(hypothesis, holders, true);
    std::vector<Placement> said;
    for (std::size_t holder = 0; holder < holders.count(); ++holder) {
      said.push_back(place(spec, locals[holder], holders.layouts()[holder]));
    }
    if (place_alike(placements, said)) {
      return to_string(spec);
    }
  }
  return "";
}

Placement without_flat_range_of_one_dimension(Placement placement) {
  if (placement.flat && placement.dims.size() == 1) {
    placement.dims.front() = part_of(placement.dims.front(), *placement.flat);
    placement.flat.reset();
  }
  return placement;
}

bool place_alike(std::span<const Placement> left, std::span<const Placement> right) {
  std::map<int, int> numbers;  // of addends: on the right, by that on the left
  std::map<int, int> backwards;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const int from = left[i].partial_index;
    const int to = right[i].partial_index;
    if (!same_dims(without_flat_range_of_one_dimension(left[i]),
                   without_flat_range_of_one_dimension(right[i])) ||
        numbers.try_emplace(from, to).first->second != to ||
        backwards.try_emplace(to, from).first->second != from) {
      return false;
    }
  }
  return true;
}

}  // namespace ttrace
