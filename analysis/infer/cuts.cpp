#include "analysis/infer/cuts.h"

#include <ttrace/error.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// Indices of a slow factor within which a fast one may be cut; place() refuses more pieces.
constexpr std::int64_t kMostOuter = std::int64_t{1} << 16;

// Axes in the order of cutting.
using Uses = std::vector<AxisUse>;

// The cuts that are tried: up to three factors. The middle one is cut, and the first one, too, if
// two are cut.
struct Form {
  std::int64_t outer = 1;
  Uses outer_uses;
  std::int64_t middle = 1;
  Uses uses;
  std::int64_t inner = 1;
};

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t low = 1; low * low <= number; ++low) {
    if (number % low == 0) {
      divisors.push_back(low);
      if (low != number / low) {
        divisors.push_back(number / low);
      }
    }
  }
  std::ranges::sort(divisors);
  return divisors;
}

class Finder {
 public:
  Finder(std::int64_t logical, std::span<const std::int64_t> locals, const Holders& holders)
      : logical_(logical),
        locals_(locals.begin(), locals.end()),
        holders_(holders),
        divisors_(divisors_of(logical)),
        largest_(std::ranges::max(locals)),
        even_(std::ranges::all_of(locals, [&](std::int64_t size) { return size == largest_; })) {}

  std::vector<Cut> find() {
    if (even_ && largest_ >= logical_) {
      find_whole();
      return std::move(found_);
    }
    // Padding that outweighs the tensor leaves ranks with nothing: only where nothing else is left.
    for (const bool roomy : {false, true}) {
      roomy_ = roomy;
      extend({}, 0, 1);
      if (!found_.empty()) {
        break;
      }
    }
    std::ranges::stable_sort(found_, {}, &Cut::complexity);
    return std::move(found_);
  }

 private:
  // Every rank has room for all of it; with padding that outweighs it, perhaps one of them alone.
  void find_whole() {
    add({1, {}, logical_, {}, 1});
    for (const HolderAxis& axis : holders_.axes()) {
      if (largest_ > logical_) {
        add({1, {}, logical_, {{axis.name, Sharding::kContiguous}}, 1});
      }
    }
  }

  // Whether this many parts of the largest local size form the dimension, padding included.
  [[nodiscard]] bool sizes_fit(std::int64_t ranks) const {
    const std::int64_t all = largest_ * ranks;
    return all >= logical_ && (roomy_ || all < 2 * logical_);
  }

  // Sequences of axes, each with both ways of cutting.
  void extend(const Uses& uses, AxisSet taken, std::int64_t ranks) {
    if (!uses.empty() && holders_.independent(taken) && sizes_fit(ranks)) {
      try_forms(uses);
    }
    for (std::size_t axis = 0; axis < holders_.axes().size(); ++axis) {
      const AxisSet bit = AxisSet{1} << axis;
      const HolderAxis& next = holders_.axes()[axis];
      if ((taken & bit) != 0 || largest_ * ranks >= logical_) {
        continue;
      }
      for (const Sharding sharding : {Sharding::kContiguous, Sharding::kZigzag}) {
        Uses longer = uses;
        longer.push_back({next.name, sharding});
        extend(longer, taken | bit, ranks * next.size);
      }
    }
  }

  [[nodiscard]] bool divides_locals(std::int64_t factor) const {
    return std::ranges::all_of(locals_, [&](std::int64_t size) { return size % factor == 0; });
  }

  void try_forms(const Uses& uses) {
    for (const std::int64_t outer : divisors_) {
      if (outer > kMostOuter || !divides_locals(outer)) {
        continue;
      }
      const std::int64_t rest = logical_ / outer;
      for (const std::int64_t inner : divisors_) {
        // Whole indices of an inner factor matter only where cutting does not come out even.
        const bool matters = inner == 1 || rest / inner % ranks_of(uses) != 0;
        if (rest % inner == 0 && matters && divides_locals(outer * inner)) {
          add({outer, {}, rest / inner, uses, inner});
        }
      }
      for (std::size_t split = 1; split < uses.size() && outer > 1 && outer < logical_; ++split) {
        const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(split);
        add({outer, Uses(uses.begin(), middle), rest, Uses(middle, uses.end()), 1});
      }
    }
    // A slow factor that is cut need not divide what a rank holds.
    for (const std::int64_t outer : divisors_) {
      for (std::size_t split = 1; split < uses.size() && !divides_locals(outer); ++split) {
        const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(split);
        add({outer, Uses(uses.begin(), middle), logical_ / outer, Uses(middle, uses.end()), 1});
      }
    }
  }

  // Chunks that one cut makes.
  [[nodiscard]] std::int64_t ranks_of(const Uses& uses) const {
    std::int64_t product = 1;
    for (const AxisUse& use : uses) {
      product *=
          holders_.axes()[number_of(use.axis)].size * (use.sharding == Sharding::kZigzag ? 2 : 1);
    }
    return product;
  }

  // Returns nothing if the grammar contradicts the holders' sizes.
  [[nodiscard]] std::optional<std::vector<DimPlacement>> parts_of(
      const std::vector<DimFactor>& factors) const {
    const DimsSpec dims{{factors}, {}};
    std::vector<DimPlacement> parts;
    for (std::size_t holder = 0; holder < holders_.count(); ++holder) {
      try {
        const std::vector<std::int64_t> shape{locals_[holder]};
        parts.push_back(place(dims, shape, holders_.layouts()[holder]).dims.front());
      } catch (const UsageError&) {
        return std::nullopt;
      }
      if (parts.back().logical_size != logical_) {
        return std::nullopt;
      }
    }
    return parts;
  }

  void add(const Form& form) {
    std::vector<DimFactor> factors;
    if (form.outer > 1) {
      factors.push_back({"", form.outer, form.outer_uses});
    }
    factors.push_back({"x", form.middle, form.uses});
    if (form.inner > 1) {
      factors.push_back({"", form.inner, {}});
    }
    auto parts = parts_of(factors);
    if (!parts || std::ranges::find(found_, *parts, &Cut::parts) != found_.end()) {
      return;
    }
    // Sizes that follow from the local ones are left out, so that other models fit as well.
    std::vector<DimFactor> shorter = factors;
    shorter[form.outer > 1 ? 1 : 0].size.reset();
    const bool follows = parts_of(shorter) == parts;
    Cut cut{follows ? shorter : factors, 0, std::move(*parts), 0};
    for (const Uses* uses : {&form.outer_uses, &form.uses}) {
      for (const AxisUse& use : *uses) {
        cut.axes |= AxisSet{1} << number_of(use.axis);
        cut.complexity += use.sharding == Sharding::kZigzag ? 18 : 16;
      }
    }
    cut.complexity += 4 * (static_cast<int>(factors.size()) - 1) + (follows ? 0 : 1);
    found_.push_back(std::move(cut));
  }

  // Requires: an axis of the holders.
  [[nodiscard]] std::size_t number_of(const std::string& axis) const {
    return static_cast<std::size_t>(std::ranges::find(holders_.axes(), axis, &HolderAxis::name) -
                                    holders_.axes().begin());
  }

  std::int64_t logical_;
  std::vector<std::int64_t> locals_;
  const Holders& holders_;
  std::vector<std::int64_t> divisors_;
  std::int64_t largest_;
  bool even_;
  bool roomy_ = false;
  std::vector<Cut> found_;
};

}  // namespace

std::vector<Cut> ways_to_cut(std::int64_t logical,
                             std::span<const std::int64_t> locals,
                             const Holders& holders) {
  return Finder(logical, locals, holders).find();
}

std::shared_ptr<const std::vector<Cut>> CutTable::get(std::int64_t logical,
                                                      std::span<const std::int64_t> locals,
                                                      const Holders& holders) {
  Key key{&holders, logical, {locals.begin(), locals.end()}};
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) {
      return known->second;
    }
  }
  auto cuts = std::make_shared<const std::vector<Cut>>(ways_to_cut(logical, locals, holders));
  const std::lock_guard lock(mutex_);
  return known_.try_emplace(std::move(key), std::move(cuts)).first->second;
}

}  // namespace ttrace
