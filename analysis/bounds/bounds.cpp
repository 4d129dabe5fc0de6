#include "analysis/bounds/bounds.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/sums/squared.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

// What training keeps from step to step: statistics, averages, learning rates.
bool is_kept(Kind kind) {
  return kind == Kind::kState || kind == Kind::kStateBefore || kind == Kind::kCopy ||
         kind == Kind::kBuffer;
}

constexpr double kFlipsOfLargestElement = 2.0;  // ulps
constexpr double kLargestNoiseMultiple = 3.0;   // m
constexpr double kInherited = 3.0;
constexpr double kRepeats = 4.0;  // of what a second run of the reference, or a pass, moved
constexpr double kChecks = 3.0;   // of a tensor: whole, part, factor

}  // namespace

Bounds::Bounds(const NoiseModel& noise,
               ElementType precision,
               bool same_precision,
               const Limits& limits,
               bool rounded_products)
    : noise_(noise),
      limits_(limits),
      source_(counted(noise.passes(), "noise pass")),
      precision_(precision),
      same_precision_(same_precision),
      rounded_products_(rounded_products && limits.has(Allowance::kRoundedProducts)) {}

Bound Bounds::of(const Judged& judged) const {
  if (is_exact(judged.id, judged.type)) {
    const std::string_view what =
        is_floating(judged.type) ? name_of(judged.id.kind) : name_of(judged.type);
    return {0.0, std::nullopt, BoundOrigin::kExact, "exact (" + std::string(what) + ")"};
  }
  std::string why;
  const TensorNoise* noise = usable_noise(judged.id, why);
  return noise == nullptr ? from_class(judged, why) : from_noise(judged, *noise);
}

double Bounds::of_copies(const Match& match, std::span<const Shard> copies) const {
  const Record& record = *copies.front().record;
  const Irreproducible& irreproducible = noise_.irreproducible();
  if (is_exact(match.id, record.type) || !irreproducible.reaches(match)) {
    return 0.0;
  }
  double largest = 0.0;
  for (const Shard& copy : copies) {
    largest = std::max(largest, copy.record->max_abs);
  }
  // One second run is no distribution, and noise passes do not reproduce the tensor either.
  const TensorNoise* const noise = noise_.find(match.id);
  const NoiseRow* const second = irreproducible.find(match.id);
  const double measured = noise != nullptr    ? noise->max_abs
                          : second != nullptr ? second->max_abs
                                              : 0.0;
  return kRepeats * measured + flips_of(record.type, largest);
}

const TensorNoise* Bounds::usable_noise(const TensorId& id, std::string& why) const {
  const TensorNoise* noise = noise_.find(id);
  if (noise_.passes() == 0) {
    why = "no noise stored";
  } else if (!same_precision_) {
    why = "precisions differ";
  } else if (rounded_products_) {
    why = "operands of products are rounded";
  } else if (noise == nullptr || noise->passes != noise_.passes()) {
    why = "not in all noise passes";
  } else if (noise->nonfinite > 0 || !std::isfinite(noise->mean_squared)) {
    why = "a noise pass made NaN or Inf";
  } else if (noise->untouched()) {
    why = "code that torch does not dispatch made it, and no noise reached it";
  } else {
    return noise;
  }
  return nullptr;
}

Bound Bounds::of_flips(const TensorId& margins, std::int64_t tokens, double largest) const {
  constexpr double kOfChoices = 2.0;
  constexpr double kDeviations = 3.2;
  std::string why;
  const TensorNoise* noise = usable_noise(margins, why);
  if (noise == nullptr) {
    return {default_factor(TensorClass::kActivation, margins.step) * unit_of(precision_) * largest,
            std::nullopt,
            BoundOrigin::kClassDefault,
            "class default (" + why + ")"};
  }
  const double s =
      std::sqrt(noise->mean_squared / static_cast<double>(std::max<std::int64_t>(1, tokens)));
  return {kOfChoices * std::max(noise->max_abs, kDeviations * s),
          std::nullopt,
          BoundOrigin::kNoise,
          fmt::format("margins in {} x {}", source_, short_number(kOfChoices))};
}

double Bounds::flips_of(ElementType type, double largest) const {
  return limits_.granted(Allowance::kStorage,
                         kFlipsOfLargestElement * unit_in_last_place(type, largest));
}

// By how much the squared noise of a parameter's accumulated gradient grows where micro-batches err
// alike; what the optimizer makes of it grows by the same.
double Bounds::common_growth(const TensorId& id) const {
  if (!traits_of(id.kind).of_update) {
    return 1.0;
  }
  const TensorNoise* gradient =
      noise_.find({.step = id.step, .kind = Kind::kMainGrad, .path = parameter_of(id)});
  if (gradient == nullptr || gradient->mean_squared == 0.0) {
    return 1.0;
  }
  const double alike = squared(noise_.if_all_alike(id.step, parameter_of(id)));
  return std::max(1.0, alike / gradient->mean_squared);
}

double Bounds::freedom_of(const Judged& judged) const {
  const auto elements = static_cast<double>(std::max<std::int64_t>(1, judged.statistics.count));
  return noise_.passes() == 0
             ? elements
             : std::min(elements,
                        noise_.of_kind(judged.id).spread(judged.dimensions).squared.freedom());
}

double Bounds::by_chance() const {
  return kFalseAlarmsPerRun / (kChecks * noise_.moved());
}

ErrorSpread Bounds::spread_against_noise(const Judged& judged) const {
  return {limits_.of(Statistic::kOfReference),
          limits_.of(Statistic::kFactorOfReference),
          limits_.granted(Allowance::kFactorRounding, 1.0),
          limits_.granted(Allowance::kOwnSpread, kOwnSpreadLimit),
          know_parts(judged.id) ? inherited_share(judged.id) : 0.0,
          freedom_of(judged),
          by_chance(),
          noise_.find(judged.id)};
}

ErrorSpread Bounds::spread_against_rounding(const Judged& judged) const {
  ErrorSpread spread = spread_against_noise(judged);
  spread.kernel_factor = limits_.of(Statistic::kOfOperators);
  spread.kernel_factor_along = limits_.of(Statistic::kFactorOfOperators);
  return spread;
}

Yardstick Bounds::yardstick_of(const Judged& judged, const TensorNoise& noise) const {
  const TensorClass tensor_class = judged.tensor_class();
  const Statistics& statistics = judged.statistics;
  Yardstick yardstick(limits_.allowances());
  yardstick.add(
      noise.irreproducible == noise.mean_squared ? Component::kIrreproducible : Component::kNoise,
      noise.mean_squared);
  yardstick.add(Component::kAlikeMicrobatches,
                noise.mean_squared * (common_growth(judged.id) - 1.0));
  if (is_optimizer_result(tensor_class)) {
    // Flips reach few elements, so that they explain no error which many elements share.
    const double largest =
        std::min(noise_.of_kind(judged.id).largest, judged.statistics.max_difference);
    yardstick.add(Component::kUpdateFlips, squared(kLargestNoiseMultiple * largest));
  }
  if (judged.id.microbatch != kNoMicrobatch && tensor_class != TensorClass::kVector) {
    yardstick.add(Component::kInheritedNoise, kInherited * noise_.inherited(judged.id));
  }
  if (tensor_class == TensorClass::kScale) {
    yardstick.add(Component::kScaleNoise,
                  squared(noise_.of_scale(judged.id) * statistics.max_reference));
  }
  if (tensor_class == TensorClass::kScalar) {
    // Five equal scalars are chance (a mean of thousands of numbers), not a promise of equality.
    yardstick.add(Component::kStorage,
                  squared(rounding_of_scalars(precision_)) * statistics.reference_squared);
  }
  if (is_kept(judged.id.kind)) {
    // Each program has its own formula for an average, and noise may be too small to move it. One
    // number is a learning rate or a counter, which programs compute in F32 or in F64.
    const ElementType type = statistics.count == 1 ? ElementType::kF32 : judged.type;
    yardstick.raise_to(Component::kOtherGrid,
                       squared(unit_in_last_place(type, 1.0)) * statistics.reference_squared);
  }
  return yardstick;
}

Bound Bounds::from_noise(const Judged& judged, const TensorNoise& noise) const {
  const bool has_grid =
      judged.tensor_class() == TensorClass::kScale && limits_.has(Allowance::kScaleNoise);
  const ElementType type = has_grid ? coarser(judged.type, ElementType::kBF16) : judged.type;
  const bool may_be_exact = (!has_grid || noise_.of_kind(judged.id).largest == 0.0) &&
                            !noise_.updated_before(judged.id.step);
  Yardstick yardstick = yardstick_of(judged, noise);
  if (judged.rescaled) {
    yardstick.raise_to(
        Component::kOtherGrid,
        squared(unit_in_last_place(type, 1.0)) * judged.statistics.reference_squared);
  }
  if (yardstick.squared() == 0.0 && may_be_exact) {
    return {0.0, 0.0, BoundOrigin::kNoise, "equal in all " + source_};
  }
  yardstick.add(Component::kStorage, squared(flips_of(type, judged.statistics.max_reference)));
  // The second run of the reference is one sample.
  const double samples = yardstick.squared(Component::kIrreproducible) > 0.0 ? 1.0 : noise.passes;
  const double freedom = freedom_of(judged);
  constexpr Statistic kFactor = Statistic::kOfReference;
  const RatioLimit ratio =
      ratio_limit(limits_.of(kFactor), freedom, samples * freedom, by_chance());
  return {ratio.value * yardstick.scale(),
          yardstick.scale(),
          BoundOrigin::kNoise,
          fmt::format("{} x {}{}",
                      source_,
                      short_number(ratio.value),
                      limits_.is_calibrated(kFactor) ? " (calibrated)" : ""),
          yardstick,
          ratio,
          noise.passes};
}

bool Bounds::know_parts(const TensorId& id) const {
  const TensorNoise* const noise = noise_.find(id);
  return noise != nullptr && noise->mean_squared > 0.0;
}

std::optional<PartBounds> Bounds::of_parts(const Judged& judged) const {
  if (!know_parts(judged.id)) {
    return std::nullopt;
  }
  const TensorNoise* const noise = noise_.find(judged.id);
  const Yardstick whole = yardstick_of(judged, *noise);
  const double alike = noise->mean_squared + whole.squared(Component::kAlikeMicrobatches);
  const double inherited = whole.squared(Component::kInheritedNoise);
  const double others = std::max(0.0, whole.squared() - alike - inherited);
  PartBounds parts;
  if (!noise->slices.empty()) {
    // A rare event that a pass shows in one part may befall the candidate in another.
    const double of_element = std::min(noise->max_abs, judged.statistics.max_difference);
    parts.slices = SliceBound{
        .noise = noise,
        .growth = alike / noise->mean_squared,
        .inherited = inherited > 0.0 || judged.id.microbatch != kNoMicrobatch ? kInherited : 0.0,
        .before = noise_.before_updates(judged.id),
        .added_squared = others + squared(of_element) +
                         squared(flips_of(judged.type, judged.statistics.max_reference)),
        .relative_squared = judged.rescaled ? squared(unit_in_last_place(judged.type, 1.0)) *
                                                  noise->mean_squared / alike
                                            : 0.0,
        .spread = spread_against_noise(judged)};
  }
  if (noise->along_squared && judged.statistics.reference_squared > 0.0) {
    parts.factor = of_factor(
        judged, *noise, (alike + inherited) / noise->mean_squared, others / noise->mean_squared);
  }
  return parts;
}

double Bounds::inherited_share(const TensorId& id) const {
  return std::min(1.0, noise_.inherited(id) / noise_.find(id)->mean_squared);
}

FactorBound Bounds::of_factor(const Judged& judged,
                              const TensorNoise& noise,
                              double growth,
                              double others) const {
  const double reference = judged.statistics.reference_squared;
  const double independent =
      noise.mean_squared * reference / static_cast<double>(judged.statistics.count);
  const VariancePrior& alike = noise_.of_kind(judged.id).spread(judged.dimensions).along;
  const double own = static_cast<double>(noise.passes);
  // What an update brings to a step is the same thing in all its tensors, so that others of the
  // kind tell no more of it than the passes do.
  const double pooled =
      freedom_of_sum(inherited_share(judged.id), own, own + alike.weight(own)) - own;
  const double along =
      growth * (own * *noise.along_squared + pooled * alike.mean() * independent) / (own + pooled) +
      others * independent;
  const ElementType kept = judged.rescaled                   ? judged.type
                           : precision_ == ElementType::kF64 ? precision_
                                                             : ElementType::kF32;
  const double rounding =
      limits_.granted(Allowance::kFactorRounding, unit_in_last_place(kept, 1.0));
  return {std::sqrt(along / squared(reference) + squared(rounding)),
          ratio_limit(limits_.of(Statistic::kFactorOfReference), 1.0, own + pooled, by_chance())};
}

Bound Bounds::from_class(const Judged& judged, const std::string& why) const {
  const double roundings =
      default_factor(judged.tensor_class(), judged.id.step) * unit_of(precision_);
  Yardstick yardstick(limits_.allowances());
  yardstick.add(Component::kClassDefault, squared(roundings * judged.statistics.reference_norm()));
  if (const NoiseRow* const second = noise_.irreproducible().find(judged.id)) {
    yardstick.raise_to(Component::kIrreproducible, squared(kRepeats) * second->sum_squared);
  }
  return {yardstick.scale(),
          std::nullopt,
          BoundOrigin::kClassDefault,
          "class default (" + why + ")",
          yardstick};
}

double FactorComparison::needed_limit() const {
  const double beyond = std::abs(deviation) - granted;
  return beyond <= least ? 0.0 : beyond / scale;
}

}  // namespace ttrace
