#include "analysis/checks/slices.h"

#include "analysis/align/values.h"
#include "analysis/checks/shard_sums.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// Indices [begin, end) of one dimension.
struct Range {
  std::size_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// 0 where nothing is known of slices.
double sum_over(std::span<const double> slices, const Range& range) {
  if (slices.empty()) {
    return 0.0;
  }
  const auto part = slices.subspan(static_cast<std::size_t>(range.begin),
                                   static_cast<std::size_t>(range.end - range.begin));
  return std::accumulate(part.begin(), part.end(), 0.0);
}

// Ranks that hold an element within all of `ranges`.
std::vector<int> holders(std::span<const Shard> shards, const std::vector<Range>& ranges) {
  return ranks_holding(shards, [&](const Rectangle& box) {
    return std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
      const std::int64_t begin = box.logical_start.at(range.dim);
      return begin < range.end && range.begin < begin + box.extent.at(range.dim);
    });
  });
}

// By what a sort of parts is judged.
struct PartLimit {
  RatioLimit ratio;
  double own = 1.0;        // weight of a part's own noise
  double pooled = 0.0;     // of what parts of its size have on average
  double inherited = 0.0;  // squared: from an update of one element, which may reach any slice
  double least = 0.0;      // of the slice's squared noise
  double growth = 1.0;     // of squared noise
  double added = 0.0;      // squared, beside the noise
};

// Looks for the part that is farthest beyond, or nearest to, its bound.
class Search {
 public:
  Search(const TensorPair& pair, const Slices& slices, const SliceContext& context)
      : pair_(pair), slices_(slices), context_(context), noise_(*context.bound.noise) {}

  [[nodiscard]] SliceComparison run() {
    for (const Slicing& slicing : slices_.slicings) {
      look_at(slicing);
    }
    look_at_heads();
    look_at_shards();
    return std::move(worst_);
  }

 private:
  [[nodiscard]] double share_of(std::int64_t elements) const {
    return static_cast<double>(elements) /
           static_cast<double>(std::max<std::int64_t>(1, slices_.all.count));
  }

  // Of a right tensor's parts, any one exceeds its limit with the probability of the whole.
  [[nodiscard]] double by_chance() const {
    const std::size_t parts = slices_.sums.size() + context_.candidate.size() +
                              static_cast<std::size_t>(pair_.shape.back());
    return context_.bound.spread.by_chance / static_cast<double>(parts);
  }

  [[nodiscard]] PartLimit limit_from(double freedom, double own, double pooled) const {
    const RatioLimit ratio = ratio_limit(
        context_.bound.spread.kernel_factor, freedom, (own + pooled) * freedom, by_chance());
    PartLimit limit{ratio, own, pooled};
    limit.growth = context_.bound.growth;
    return limit;
  }

  // The most that one of the slices has beyond its noise before any update.
  [[nodiscard]] double inherited_of(const Slicing& slicing) const {
    const TensorNoise* const before = context_.bound.before;
    if (before == nullptr || before->slices.size() != noise_.slices.size()) {
      return 0.0;
    }
    const auto now = slicing.of(noise_.slices);
    const auto then = slicing.of(before->slices);
    double most = 0.0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      most = std::max(most, now[i] - then[i]);
    }
    return context_.bound.inherited * most;
  }

  // Of one slice in one pass: what the noise passes tell, or the candidate's own errors.
  [[nodiscard]] double freedom_of(const Slicing& slicing) const {
    const auto elements = static_cast<double>(slices_.all.count / slicing.count);
    const auto number = static_cast<std::size_t>(&slicing - slices_.slicings.data());
    const std::vector<double>& shown = context_.bound.freedom.of_slice;
    const double own = shown.empty() ? 0.0 : shown.at(number);
    const TensorNoise* const passes = context_.bound.spread.passes;
    if (passes == nullptr || passes->slices_fourth.size() != slices_.sums.size()) {
      return own > 0.0 ? std::min(elements, own) : elements;
    }
    const auto means = slicing.of(passes->slices);
    const auto fourths = slicing.of(passes->slices_fourth);
    Scatter scatter;
    for (std::size_t i = 0; i < means.size(); ++i) {
      scatter.add(means[i], fourths[i], passes->passes);
    }
    return std::min(elements, std::max(own, scatter.freedom()));
  }

  // Of a slicing's slices.
  [[nodiscard]] PartLimit limit_of(const Slicing& slicing) const {
    VariancePrior alike;
    const double expected = noise_.mean_squared / static_cast<double>(slicing.count);
    for (const double noise : slicing.of(noise_.slices)) {
      alike.add(noise / expected);
    }
    const double samples = noise_.passes;
    const double freedom = freedom_of(slicing);
    PartLimit part = limit_from(freedom, samples, alike.weight(samples * freedom) / freedom);
    part.inherited = inherited_of(slicing);
    return part;
  }

  // Of a rank's part.
  [[nodiscard]] PartLimit limit_of_shard(std::int64_t elements) const {
    return limit_from(
        context_.bound.spread.freedom * share_of(elements), noise_.passes, kPooledPasses);
  }

  // `mean`: the part's squared noise over all passes.
  [[nodiscard]] SliceComparison compare(const SliceSums& sums,
                                        double mean,
                                        const PartLimit& part) const {
    const SliceBound& bound = context_.bound;
    const double mixed =
        (part.own * mean + part.pooled * share_of(sums.count) * noise_.mean_squared) /
        (part.own + part.pooled);
    const double relative = bound.relative_squared * sums.reference_squared;
    const double scale = std::sqrt(part.growth * std::max({mixed, part.least, relative}) +
                                   part.added + part.inherited + bound.added_squared);
    SliceComparison result;
    result.error = std::sqrt(sums.difference_squared);
    result.scale = scale;
    result.q = result.error / scale;
    result.bound = part.ratio.value * scale;
    result.ratio = part.ratio;
    return result;
  }

  // Returns whether the part is worse than all before it.
  bool offer(SliceComparison part) {
    if (has_any_ && part.error * worst_.bound <= worst_.error * part.bound) {
      return false;
    }
    worst_ = std::move(part);
    has_any_ = true;
    return true;
  }

  [[nodiscard]] SliceComparison slice(const Slicing& slicing,
                                      std::int64_t number,
                                      const PartLimit& part) const {
    const std::size_t at = slicing.first + static_cast<std::size_t>(number);
    const PartLimit own = part_of(part, slicing, {slicing.dim, number, number + 1});
    SliceComparison result = compare(slices_.sums[at], noise_.slices[at], own);
    if (result.beyond()) {
      const double few = elements_that_matter(slicing, number);
      if (few < part.ratio.freedom) {
        result.ratio = ratio_limit(
            part.ratio.kernel_factor, few, part.ratio.freedom_of_estimate, part.ratio.by_chance);
        result.bound = result.ratio.value * result.scale;
      }
    }
    return result;
  }

  // How many equal elements a slice of this spread would have, (sum r^2)^2 / sum r^4: few may be
  // different from zero, or one may outweigh the others, so that nothing averages its rounding.
  [[nodiscard]] double elements_that_matter(const Slicing& slicing, std::int64_t number) const {
    const SliceView view = view_of(pair_.shape, slicing);
    std::vector<double> run(static_cast<std::size_t>(view.inner));
    double squares = 0.0;
    double fourth_powers = 0.0;
    for (std::int64_t outer = 0; outer < view.outer; ++outer) {
      const std::int64_t start = (outer * view.size + number) * view.inner;
      to_double(pair_.reference_type,
                advance(pair_.reference, pair_.reference_type, start),
                view.inner,
                run.data());
      for (const double value : run) {
        squares += value * value;
        fourth_powers += value * value * value * value;
      }
    }
    return fourth_powers > 0.0 ? squares * squares / fourth_powers
                               : static_cast<double>(view.slice_elements());
  }

  void look_at(const Slicing& slicing) {
    std::int64_t found = -1;
    const PartLimit limit = limit_of(slicing);
    for (std::int64_t i = 0; i < slicing.count; ++i) {
      found = offer(slice(slicing, i, limit)) ? i : found;
    }
    if (found >= 0) {
      slicing.is_of_rows() ? name_row(found) : name_indices(slicing, found, limit);
    }
  }

  // Neighbours of the worst slice that are beyond their bounds belong to it.
  void name_indices(const Slicing& slicing, std::int64_t found, const PartLimit& limit) {
    Range range{slicing.dim, found, found + 1};
    while (range.begin > 0 && slice(slicing, range.begin - 1, limit).beyond()) {
      --range.begin;
    }
    while (range.end < slicing.count && slice(slicing, range.end, limit).beyond()) {
      ++range.end;
    }
    worst_.where = context_.names.indices(slicing.dim, range.begin, range.end);
    worst_.ranks = holders(context_.candidate, {range});
  }

  void name_row(std::int64_t number) {
    const std::vector<std::int64_t> index = unravel(number, leading_shape(pair_.shape));
    std::vector<Range> ranges;
    for (std::size_t dim = 0; dim < index.size(); ++dim) {
      ranges.push_back({dim, index[dim], index[dim] + 1});
    }
    worst_.where = "row " + index_text(index);
    worst_.ranks = holders(context_.candidate, ranges);
  }

  void look_at_heads() {
    const std::size_t last = pair_.shape.size() - 1;
    const Slicing* const slicing = slices_.along(last);
    const std::int64_t size = context_.head;
    if (size < 2 || slicing == nullptr || slicing->count % size != 0 || slicing->count == size) {
      return;
    }
    const std::vector<SliceSums> heads = sum_groups(slices_.of(*slicing), size);
    // Where slices differ, the average of all of them says little of a head.
    const PartLimit of_slices = limit_of(*slicing);
    const PartLimit limit =
        limit_from(std::max(freedom_of(*slicing),
                            context_.bound.spread.freedom * share_of(heads.front().count)),
                   noise_.passes,
                   std::min(kPooledPasses, of_slices.pooled));
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const Range range{
          last, static_cast<std::int64_t>(i) * size, static_cast<std::int64_t>(i + 1) * size};
      const double noise = sum_over(slicing->of(noise_.slices), range);
      if (offer(compare(heads[i], noise, part_of(limit, *slicing, range)))) {
        worst_.where = context_.names.head(i, last, range.begin, range.end);
        worst_.ranks = holders(context_.candidate, {range});
      }
    }
  }

  // What a run of slices is judged by, as one of those that `limit` is of.
  [[nodiscard]] PartLimit part_of(const PartLimit& limit,
                                  const Slicing& slicing,
                                  const Range& range) const {
    const SliceBound& bound = context_.bound;
    PartLimit part = limit;
    if (bound.columns && slicing.dim == pair_.shape.size() - 1) {
      part.growth = bound.columns->growth;
      part.least = sum_over(bound.columns->least, range);
      part.added = sum_over(bound.columns->added, range);
    }
    return part;
  }

  // The part of the noise that lies in what a dimension's segments hold.
  [[nodiscard]] double share_of(std::size_t dim, const DimPlacement& held) const {
    const Slicing* const slicing = slices_.along(dim);
    double share = 0.0;
    for (const Segment& segment : held.segments) {
      if (slicing == nullptr) {
        share += static_cast<double>(segment.extent) / static_cast<double>(pair_.shape[dim]);
        continue;
      }
      const Range range{dim, segment.logical, segment.logical + segment.extent};
      share += sum_over(slicing->of(noise_.slices), range) / noise_.mean_squared;
    }
    return share;
  }

  void look_at_shards() {
    std::vector<Shard> parts;  // of shards that are not the whole tensor
    const std::int64_t all =
        element_count(std::vector<std::int64_t>(pair_.shape.begin(), pair_.shape.end()));
    std::copy_if(context_.candidate.begin(),
                 context_.candidate.end(),
                 std::back_inserter(parts),
                 [&](const Shard& shard) {
                   const std::int64_t held = elements_of(shard.record->placement);
                   return held > 0 && held < all;
                 });
    for (const ShardSums& shard : sum_shards(pair_, slices_, parts)) {
      const Placement& placement = *shard.placement;
      double noise = noise_.mean_squared;
      if (placement.flat) {
        noise *= static_cast<double>(elements_of(placement)) / static_cast<double>(all);
      } else {
        for (std::size_t dim = 0; dim < placement.dims.size(); ++dim) {
          noise *= share_of(dim, placement.dims[dim]);
        }
      }
      if (offer(compare(shard.sums, noise, limit_of_shard(shard.sums.count)))) {
        worst_.where = "the shard of " + ranks_text(shard.ranks);
        worst_.ranks = shard.ranks;
      }
    }
  }

  const TensorPair& pair_;
  const Slices& slices_;
  const SliceContext& context_;
  const TensorNoise& noise_;
  SliceComparison worst_;
  bool has_any_ = false;
};

}  // namespace

PartNames::PartNames(const SketchGrid& grid, std::span<const std::int64_t> shape) {
  std::vector<std::size_t> leading;  // dimensions of several indices
  for (std::size_t dim = 0; dim + 1 < shape.size(); ++dim) {
    if (shape[dim] > 1) {
      leading.push_back(dim);
    }
  }
  const std::size_t last = shape.empty() ? 0 : shape.size() - 1;
  const std::string of_rows = leading.size() == 1 ? "dimension " + std::to_string(leading.front())
                                                  : "all dimensions but the last, taken as one";
  blocks_ = {{of_rows, std::int64_t{1} << static_cast<unsigned>(grid.row_shift), grid.rows},
             {"dimension " + std::to_string(last),
              std::int64_t{1} << static_cast<unsigned>(grid.column_shift),
              grid.columns}};
}

std::string PartNames::range(std::size_t dim, std::int64_t begin, std::int64_t end) const {
  if (blocks_.empty()) {
    return fmt::format("{}:{} of dimension {}", begin, end, dim);
  }
  const Blocks& blocks = blocks_.at(dim);
  return fmt::format("{}:{} of {}",
                     begin * blocks.width,
                     std::min(end * blocks.width, blocks.size),
                     blocks.dimension);
}

std::string PartNames::indices(std::size_t dim, std::int64_t begin, std::int64_t end) const {
  return "rows " + range(dim, begin, end);
}

std::string PartNames::head(std::size_t number,
                            std::size_t dim,
                            std::int64_t begin,
                            std::int64_t end) const {
  return fmt::format("head {}, {}", number, range(dim, begin, end));
}

std::vector<std::int64_t> leading_shape(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> leading(shape.begin(), shape.end());
  while (leading.back() == 1) {
    leading.pop_back();
  }
  leading.pop_back();
  return leading;
}

Slices sum_slices(const TensorPair& pair) {
  return sum_slices(
      pair.shape, pair.reference_type, pair.reference, pair.candidate_type, pair.candidate);
}

std::vector<SliceSums> sum_groups(std::span<const SliceSums> slices, std::int64_t size) {
  std::vector<SliceSums> groups(slices.size() / static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    groups[i / static_cast<std::size_t>(size)].add(slices[i]);
  }
  return groups;
}

std::optional<SliceComparison> worst_slice(const TensorPair& pair,
                                           const Slices& slices,
                                           const SliceContext& context) {
  if (slices.sums.empty() || context.bound.noise->slices.size() != slices.sums.size() ||
      !(context.bound.noise->mean_squared > 0.0)) {
    return std::nullopt;
  }
  return Search(pair, slices, context).run();
}

void add_terms(const RatioLimit& ratio, Check& check) {
  check.terms.insert(check.terms.end(),
                     {{Term::kLimit, ratio.value},
                      {Term::kKernelFactor, ratio.kernel_factor},
                      {Term::kFreedom, ratio.freedom},
                      {Term::kFreedomOfEstimate, ratio.freedom_of_estimate},
                      {Term::kByChance, ratio.by_chance}});
}

Check check_of(const SliceComparison& slice, Question question) {
  Check check;
  check.question = question;
  check.value = slice.error;
  check.bound = slice.bound;
  check.holds = !slice.beyond();
  check.origin = BoundOrigin::kNoise;
  check.place = {slice.where, slice.ranks};
  check.terms = {{Term::kScale, slice.scale},
                 {Term::kQ, slice.q},
                 {Term::kIsAddend, slice.is_addend ? 1.0 : 0.0}};
  add_terms(slice.ratio, check);
  return check;
}

Check check_of(const FactorComparison& factor, Question question) {
  Check check;
  check.question = question;
  check.value = factor.deviation;
  check.bound = factor.bound;
  check.holds = !factor.beyond();
  check.detectable = factor.bound;
  check.origin = BoundOrigin::kNoise;
  check.place.where = factor.where;
  check.terms = {{Term::kScale, factor.scale}, {Term::kNeededLimit, factor.needed_limit()}};
  if (factor.ratio) {
    add_terms(*factor.ratio, check);
  }
  return check;
}

std::string held_by(const SliceComparison& slice) {
  return slice.ranks.empty() || slice.where.find("rank") != std::string::npos
             ? ""
             : ", held by " + ranks_text(slice.ranks) + ",";
}

}  // namespace ttrace
