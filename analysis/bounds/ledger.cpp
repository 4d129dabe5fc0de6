#include "analysis/bounds/ledger.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

#define TTRACE_UNIT_TEST "build/cpu/bin/analysis_test --gtest_filter="

using enum Allowance;
using enum AllowanceScope;

constexpr auto kLedger = std::to_array<LedgerRow>({
    {kStorage,
     kAny,
     "storage",
     "The squared noise scale grows by (2 ulp of the largest element)^2, and that of a scalar by "
     "one rounding of the computing precision.",
     "A few flips of the largest element by one ulp are always possible; a program may sum a "
     "scalar "
     "in another order and type than anything that passes moved.",
     TTRACE_UNIT_TEST "Bounds.AdmitTwoFlipsOfTheLargestElementInLowPrecision"},
    {kUpdateFlips,
     kNoise,
     "update-flips",
     "The squared noise scale of an updated parameter grows by (3 times the largest noise of an "
     "element)^2.",
     "A small tensor may show no flip in five passes and one in the candidate.",
     "./dev fuzz-layouts --case 'precision=bf16 tp=4 micro_batches=16 layers=2 heads=4' "
     "--keep-clean DIR, without forced passes"},
    {kAlikeMicrobatches,
     kNoise,
     "alike-microbatches",
     "The noise of a gradient that micro-batches were added up into is at least the sum of their "
     "noises.",
     "Triangle inequality. Clean Q 1.5, 2.3 and 3.4 for 4, 16 and 64 micro-batches at tp 4 in BF16 "
     "without it; decision 0006.",
     "./dev fuzz-layouts 7 9101 --precision bf16 --keep-clean DIR, without forced passes"},
    {kInheritedNoise,
     kNoise,
     "inherited-noise",
     "The squared noise scale of a later step grows by 3 times the noise that came with updated "
     "parameters.",
     "The bias of a key moved all keys of a next step by Q 2.08 in FP64.",
     TTRACE_UNIT_TEST "Bounds.LaterStepsInheritWhatUpdatesOfBiasesDo"},
    {kScaleNoise,
     kNoise,
     "scale-noise",
     "The squared noise of an FP8 scale grows by the largest relative noise of one of its elements "
     "in any micro-batch of the step. Its storage counts in ulps of BF16, and it may differ where "
     "others of its kind moved.",
     "A scale follows from one element in BF16, which moves in some passes only.",
     TTRACE_UNIT_TEST "Bounds.OfAScaleAllowForMovesThatItMadeInOtherMicrobatches"},
    {kOtherGrid,
     kAny,
     "other-grid",
     "Where the candidate stores a multiple by no power of two, the noise is at least one ulp of "
     "every element, one rounding counts as the largest one, FP8 codes may flip, and scales that "
     "are powers of two are compared without the factor.",
     "Either side rounds once more, and equal elements all have one error: with 3 data-parallel "
     "ranks gradients of logits alarmed, R 2.04.",
     "./dev fuzz-layouts 4 9103 --precision fp8 --keep-clean DIR"},
    {kIrreproducible,
     kAny,
     "irreproducible",
     "Where a second run of the reference differs from the first, the squared noise is at least "
     "that of the difference, and copies and recomputed values may differ by as much.",
     "An operator that adds up in an order of its own choice: two ranks of a clean run that "
     "compute "
     "the same tensor differ in the last place.",
     "./dev pytest tests/python/test_machine.py"},
    {kClassDefault,
     kNoNoise,
     "class-default",
     "Without noise, and where no noise reached what code made that torch does not dispatch, the "
     "bound is 12, 40 or 100 roundings of the norm by the tensor's class, and 250 in later steps.",
     "Twice the largest clean error: 6 roundings of activations after 8 layers, 17 of gradients, "
     "122 in a second step.",
     "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR, without noise passes"},
    {kRoundedProducts,
     kAny,
     "rounded-products",
     "Where the operands of F32 products are rounded (TF32, BF16), bounds are class defaults, and "
     "an operator errs by at least sqrt(2) of those roundings.",
     "A kernel rounds them or not by the sizes that it gets, which a cut changes and noise does "
     "not: a clean output was off by 0.0026 of its norm at tp 2, 4000 times its bound from noise.",
     TTRACE_UNIT_TEST "Bounds.WhereOperandsOfProductsAreRoundedAreClassDefaults"},
    {kOperatorRounding,
     kForced,
     "operator-rounding",
     "An operator errs by at least one rounding of its result, of the product that it adds a bias "
     "to, and of an update's decay and step.",
     "The native pass may be exact by chance, and its kernel may add a bias before it rounds. "
     "Where a bias nearly cancels its product, features reached 2.9 times their own rounding.",
     "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    {kRankSums,
     kForced,
     "rank-sums",
     "The squared scale of an operator grows by the roundings of addends that ranks hold, and of "
     "their sums: in collectives, in buckets of gradients, inside of ring attention.",
     "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2. Without it R is 1.62 "
     "behind row-parallel linears at tp 2, 1.92 at tp 4, and 2.8 behind rings of four ranks.",
     "./dev fuzz-layouts 2 9101 --precision bf16 --keep-clean DIR"},
    {kClippingNorm,
     kForced,
     "clipping-norm",
     "Moments may carry the factor by which the norm that gradients are clipped by is off, up to a "
     "sum of squares in F32 and two roundings to the gradients' own type, and one rounding of the "
     "coefficient where the norm is a number of that type.",
     "Second moments of a clean Megatron-core run alarmed in BF16, R 3.9.",
     TTRACE_UNIT_TEST "OperatorPartsTest.MomentsMayCarryWhatTheClippingNormIsOffBy"},
    {kFactorRounding,
     kAny,
     "factor-rounding",
     "A factor that all elements share may be off by one rounding of F32 (or of the type of a "
     "multiple), of a clipped gradient's by three, and of its square's by six.",
     "Programs keep factors in F32. Second moments of a distributed optimizer alarmed, a factor of "
     "1 + 2.1e-7.",
     TTRACE_UNIT_TEST "OperatorPartsTest.MomentsMayCarryAnotherRoundingOfTheClippingFactor"},
    {kOwnSpread,
     kForced,
     "own-spread",
     "The factor of an operator or of an addend may be 5 times the spread of the candidate's own "
     "slices or elements.",
     "Five standard deviations, once in 10^6; outputs of row-parallel linears alarmed in BF16, a "
     "factor of 1 + 0.0002, because a product was rounded before its bias was added, alike in all "
     "rows of a column.",
     TTRACE_UNIT_TEST "OperatorPartsTest.RoundingsThatAColumnSharesAreNoFactor"},
    {kGoldenRounding,
     kGolden,
     "golden-rounding",
     "A tensor is never too accurate where the reference is off by 2 roundings or less.",
     "Storing the candidate's value costs one rounding.",
     TTRACE_UNIT_TEST "GoldenCheckTest.ReferenceThatWasRoundedOnceLeavesNoRoomToBeTooAccurate"},
    {kOrderOfSums,
     kAny,
     "order-of-sums",
     "A collective's sum may be as far off as any order of its addends makes it, a gradient norm "
     "0.1 % and a mean loss 0.01 %; where two norms differ by what a serial sum rounds, what "
     "clipped gradients make is inherited.",
     "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2; programs add thousands "
     "of numbers up in F32.",
     "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    {kNothingButNoise,
     kForced,
     "nothing-but-noise",
     "A tensor that noise passes move by more than its norm is not judged by its operators.",
     "One native pass does not tell how its roundings cancel: gradients of keys' biases had R 2.5 "
     "to 4.3 in clean F32 runs.",
     TTRACE_UNIT_TEST "OperatorCheckTest.OperatorsOfATensorThatIsNothingButNoiseAreNotJudged"},
    {kChoices,
     kAny,
     "choices",
     "What differs behind a token that goes to other experts is undecided where the reference did "
     "not follow, and operators behind choices inside of compiled code are not checked on their "
     "own.",
     "What comes after a flip is another computation; decision 0008. Four experts of 64 had "
     "gradients 15 to 21 % off, because two tokens whose scores nearly tied went elsewhere.",
     TTRACE_UNIT_TEST "RoutingCheck.*"},
    {kAddedUp,
     kForced,
     "added-up",
     "An error of up to 2 times the bound of T2 is no finding where all operators up to there are "
     "right.",
     "Clean runs with right operators reached 1.08 times the bound of a whole tensor and 1.36 "
     "times "
     "that of a factor (40 random BF16 layouts); 1.5 times that.",
     TTRACE_UNIT_TEST "OperatorCheckTest.RoundingsThatAddedUpAreInherited"},
    {kBehindFindings,
     kForced,
     "behind-findings",
     "Once something is wrong, what comes after it and has right operators inherits its error.",
     "The first diverging operator is what TTrace looks for.",
     TTRACE_UNIT_TEST "Ledger.EveryRowChangesABoundOrAVerdict"},
    {kOverflows,
     kForced,
     "overflows",
     "Where all operators up to there are right, an Inf that one side alone has counts as 65520, "
     "the smallest number that overflows in F16, and what follows from it is no finding.",
     "One gradient of 1024 was 65472 on one device and Inf under tp 2.",
     TTRACE_UNIT_TEST "OverflowTest.OneNumberThatOverflowsOnOneSideAloneIsInherited"},
    {kHarmlessScales,
     kAny,
     "harmless-scales",
     "A scale that is a power of two times the reference's and keeps the codes, but for 0.1 % that "
     "saturate or are flushed, is no finding.",
     "Codes keep their bits and products too; a margin in a recipe does it.",
     TTRACE_UNIT_TEST "QuantisedInput.AScaleThatIsTwiceTheReferencesIsHarmlessAndSaidOnce"},
});

#undef TTRACE_UNIT_TEST

static_assert([] {
  for (std::size_t number = 0; number < kLedger.size(); ++number) {
    if (static_cast<std::size_t>(kLedger[number].allowance) != number) {
      return false;
    }
  }
  return kLedger.size() == kAllowances;
}());

}  // namespace

std::span<const LedgerRow> ledger() {
  return kLedger;
}

const LedgerRow& row_of(Allowance allowance) {
  return kLedger.at(static_cast<std::size_t>(allowance));
}

std::optional<Allowance> find_allowance(std::string_view name) {
  const auto found = std::ranges::find(kLedger, name, &LedgerRow::name);
  return found == kLedger.end() ? std::nullopt : std::optional(found->allowance);
}

}  // namespace ttrace
