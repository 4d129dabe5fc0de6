#include "analysis/findings/term.h"

#include "trace/base/table_of_enum.h"

#include <array>
#include <cstddef>

namespace ttrace {
namespace {

struct TermName {
  Term term;
  std::string_view name;
};

constexpr auto kTerms = std::to_array<TermName>({
    {Term::kScale, "scale"},
    {Term::kLimit, "limit"},
    {Term::kQ, "q"},
    {Term::kPasses, "passes"},
    {Term::kKernelFactor, "kernel_factor"},
    {Term::kFreedom, "freedom"},
    {Term::kFreedomOfEstimate, "freedom_of_estimate"},
    {Term::kByChance, "by_chance"},
    {Term::kIsAddend, "is_addend"},
    {Term::kNeededLimit, "needed_limit"},
    {Term::kError, "error"},
    {Term::kNative, "native"},
    {Term::kNorm, "norm"},
    {Term::kBitEqual, "bit_equal"},
    {Term::kUnlike, "unlike"},
    {Term::kFactor, "factor"},
    {Term::kNativeFactor, "native_factor"},
    {Term::kRho, "rho"},
    {Term::kCandidateError, "candidate_error"},
    {Term::kReferenceError, "reference_error"},
    {Term::kLeastRho, "least_rho"},
    {Term::kLargestRho, "largest_rho"},
    {Term::kIsAsAccurate, "is_as_accurate"},
    {Term::kRtol, "rtol"},
    {Term::kAtol, "atol"},
    {Term::kBeyond, "beyond"},
    {Term::kTokens, "tokens"},
    {Term::kFlips, "flips"},
    {Term::kIllegal, "illegal"},
});

using enum Basis;
constexpr auto kComponents = std::to_array<ComponentTraits>({
    {Component::kNoise, "noise", "noise: the mean of ||m - r||^2 over the noise passes", kMeasured},
    {Component::kIrreproducible,
     "irreproducible",
     "a second run of the reference differs by more than the noise",
     kMeasured},
    {Component::kAlikeMicrobatches,
     "alike_microbatches",
     "what micro-batches may round alike: up to (the sum of their noises)^2",
     kDerived},
    {Component::kUpdateFlips,
     "update_flips",
     "sign flips of updates: (3 x the largest noise of an element)^2",
     kCalibrated},
    {Component::kInheritedNoise,
     "inherited_noise",
     "what updated parameters brought from earlier steps",
     kMeasured},
    {Component::kScaleNoise,
     "scale_noise",
     "the largest relative noise of the scale in any micro-batch",
     kMeasured},
    {Component::kStorage,
     "storage",
     "storage: (2 ulp of the largest element)^2, and of a scalar one rounding",
     kDerived},
    {Component::kClassDefault,
     "class_default",
     "no noise measured: (roundings of the tensor's class x ||r||)^2",
     kCalibrated},
    {Component::kNative, "native", "its operators' own rounding: ||n - f||^2", kMeasured},
    {Component::kOperatorRounding,
     "operator_rounding",
     "at least one rounding: (u ||c||)^2, and that of a product before its bias",
     kDerived},
    {Component::kRankSums,
     "rank_sums",
     "what the layout rounds: addends of ranks, and their sums",
     kDerived},
    {Component::kClippingNorm, "clipping_norm", "error of the norm of clipping", kDerived},
    {Component::kOtherGrid,
     "other_grid",
     "another grid: at least one ulp of every element, or FP8 codes that flip",
     kDerived},
});

static_assert(has_a_row_for_each(kTerms, &TermName::term, Term::kIllegal));
static_assert(has_a_row_for_each(kComponents, &ComponentTraits::component, Component::kOtherGrid));

}  // namespace

std::string_view name_of(Term term) {
  return kTerms.at(static_cast<std::size_t>(term)).name;
}

const ComponentTraits& traits_of(Component component) {
  return kComponents.at(static_cast<std::size_t>(component));
}

std::string_view name_of(Basis basis) {
  constexpr std::array<std::string_view, 3> kNames = {"measured", "derived", "calibrated"};
  return kNames.at(static_cast<std::size_t>(basis));
}

}  // namespace ttrace
