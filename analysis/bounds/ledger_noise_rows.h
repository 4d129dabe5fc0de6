// Rows of the ledger of limits: bounds from noise (T2), class defaults, choices of experts.
#pragma once

#include "analysis/bounds/allowance.h"

#include <array>

namespace ttrace {

inline constexpr std::array kNoiseRows = {
    LedgerRow{Allowance::kStorageFlips,
              AllowanceScope::kAny,
              "storage-flips",
              "The squared noise scale grows by (2 ulp of the largest element)^2.",
              "A few flips of the largest element by one ulp are always possible.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=Bounds.AdmitTwoFlipsOfTheLargestElementInLowPrecision"},
    LedgerRow{
        Allowance::kScalarRounding,
        AllowanceScope::kNoise,
        "scalar-rounding",
        "The squared noise scale of a scalar grows by one rounding of the computing precision.",
        "A program may sum a scalar in another order and type than anything that passes moved.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=Bounds.GiveScalarsOneRoundingOfTheComputingPrecision"},
    LedgerRow{Allowance::kUpdateFlips,
              AllowanceScope::kNoise,
              "update-flips",
              "The squared noise scale of an updated parameter grows by (3 times "
              "the largest noise of an element)^2.",
              "A small tensor may show no flip in five passes and one in the candidate.",
              "./dev fuzz-layouts --case 'precision=bf16 tp=4 micro_batches=16 layers=2 heads=4' "
              "--keep-clean DIR, without forced passes"},
    LedgerRow{Allowance::kAlikeMicrobatches,
              AllowanceScope::kNoise,
              "alike-microbatches",
              "The noise of a gradient that micro-batches were added up into is at least the sum "
              "of their noises.",
              "Triangle inequality. Clean Q 1.5, 2.3 and 3.4 for 4, 16 and 64 micro-batches at tp "
              "4 in BF16 without it; decision 0006.",
              "./dev fuzz-layouts 7 9101 --precision bf16 --keep-clean DIR, without forced passes"},
    LedgerRow{
        Allowance::kInheritedNoise,
        AllowanceScope::kNoise,
        "inherited-noise",
        "The squared noise scale of a later step grows by (l^2 - 1) times the noise that came with "
        "updated parameters, with l the limit of vectors over the tensor's own.",
        "The bias of a key moved all keys of a next step by Q 2.08 in FP64.",
        "build/cpu/bin/analysis_test --gtest_filter=Bounds.LaterStepsInheritWhatUpdatesOfBiasesDo"},
    LedgerRow{Allowance::kScaleNoise,
              AllowanceScope::kNoise,
              "scale-noise",
              "The squared noise of an FP8 scale grows by the largest relative noise of one of its "
              "elements in any micro-batch of the step.",
              "A scale follows from one element, which moves in some passes only.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=Bounds.OfAScaleAllowForMovesThatItMadeInOtherMicrobatches"},
    LedgerRow{Allowance::kScaleGrid,
              AllowanceScope::kNoise,
              "scale-grid",
              "Storage of an FP8 scale counts in ulps of BF16, and a scale may differ where others "
              "of its kind moved.",
              "A scale follows from values in BF16, whatever type it is stored in.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=Bounds.OfAScaleAllowForMovesThatItMadeInOtherMicrobatches"},
    LedgerRow{Allowance::kMultipleRounding,
              AllowanceScope::kNoise,
              "multiple-rounding",
              "Where the candidate stores a multiple by no power of two, the noise scale is at "
              "least one ulp of every element.",
              "The factor rounds once more on either side.",
              "./dev fuzz-layouts 4 9103 --precision fp8 --keep-clean DIR, without forced passes"},
    LedgerRow{
        Allowance::kIrreproducible,
        AllowanceScope::kAny,
        "irreproducible",
        "Where a second run of the reference differs from the first, the squared noise is at "
        "least that of the difference, and copies and recomputed values may differ by as much.",
        "An operator that adds up in an order of its own choice: two ranks of a clean run that "
        "compute the same tensor differ in the last place.",
        "./dev pytest tests/python/test_machine.py"},
    LedgerRow{
        Allowance::kUntouched,
        AllowanceScope::kNoise,
        "untouched",
        "A tensor that no noise reached has its class's default bound, if code that torch does "
        "not dispatch made it.",
        "All passes reproduce what they do not move. That is no promise of equality.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=Bounds.OfWhatNoNoiseReachedAreThoseOfItsClass"},
    LedgerRow{
        Allowance::kRoundedProducts,
        AllowanceScope::kAny,
        "rounded-products",
        "Where the operands of F32 products are rounded (TF32, BF16), bounds are class "
        "defaults, and an operator errs by at least sqrt(2) of those roundings.",
        "A kernel rounds them or not by the sizes that it gets, which a cut changes and noise "
        "does not: a clean output was off by 0.0026 of its norm at tp 2, 4000 times its bound "
        "from noise.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=Bounds.WhereOperandsOfProductsAreRoundedAreClassDefaults"},
    LedgerRow{Allowance::kFactorRounding,
              AllowanceScope::kNoise,
              "factor-rounding",
              "The noise of a factor grows by one ulp of F32, or of the storage type where the "
              "candidate stores a multiple.",
              "Programs keep factors in F32.",
              "./dev fuzz-layouts 4 9103 --precision fp8 --keep-clean DIR, without forced passes"},
    LedgerRow{Allowance::kDefaultFactor,
              AllowanceScope::kNoNoise,
              "default-factor",
              "Without noise the bound is 12 roundings of the norm.",
              "6 roundings measured for activations after 8 layers; twice that.",
              "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR, without noise passes"},
    LedgerRow{
        Allowance::kDefaultFactorOfGradients,
        AllowanceScope::kNoNoise,
        "default-factor-of-gradients",
        "Without noise the bound of gradients, scales and scalars is 40 roundings of the norm.",
        "17 roundings measured; about twice that.",
        "./dev fuzz-layouts 3 9103 --precision fp8 --keep-clean DIR, without noise passes"},
    LedgerRow{Allowance::kDefaultFactorOfVectors,
              AllowanceScope::kNoNoise,
              "default-factor-of-vectors",
              "Without noise the bound of gradients and moments of vectors, and of updated "
              "parameters, is 100 roundings of the norm.",
              "Sums over all tokens that kernels may take in low precision; the first Adam update "
              "is nearly the sign of the gradient.",
              "./dev fuzz-layouts --case 'precision=bf16 seed=4 dp=2 tp=2 sp=1 steps=2 layers=2 "
              "micro_batches=4 batch=2' --keep-clean DIR, without noise passes"},
    LedgerRow{
        Allowance::kDefaultFactorOfLaterSteps,
        AllowanceScope::kNoNoise,
        "default-factor-of-later-steps",
        "Without noise every bound after step 0 is 250 roundings of the norm.",
        "All values there have passed through updated parameters. 122 roundings were measured "
        "at a gradient in F32; about twice that.",
        "./dev fuzz-layouts --case 'precision=f32 seed=710 attention_dropout=10 packed=1 "
        "tied=1 sp=1 tp=8 steps=2 layers=3 micro_batches=4 batch=2 swiglu=1 sequence=64 "
        "vocabulary=271 ffn=128 heads=8 groups=2 head_size=12' --keep-clean DIR, without "
        "noise passes"},
    LedgerRow{Allowance::kOrderOfSummation,
              AllowanceScope::kAny,
              "order-of-summation",
              "One rounding of F32 and F64 counts as 12.",
              "The order of a sum decides there; noise passes move such results by up to 6 ulp.",
              "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{Allowance::kAveragedInProducts,
              AllowanceScope::kNoNoise,
              "averaged-in-products",
              "One rounding of an FP8 operand counts as 0.4 in class defaults.",
              "Clean relative errors 0.067, 0.115 and 0.067 of activations, their gradients and "
              "gradients of weights over two layers.",
              "build/cpu/bin/analysis_test --gtest_filter=Limits.InFp8ScalarsAreRoundedAsInBf16"},
    LedgerRow{Allowance::kLimitOfChoices,
              AllowanceScope::kNoise,
              "choice-limit",
              "A choice of experts may have moved by 2 times what margins move in noise passes.",
              "The limit of activations.",
              "build/cpu/bin/analysis_test --gtest_filter=RoutingCheck.*"},
    LedgerRow{Allowance::kRareChoices,
              AllowanceScope::kNoise,
              "rare-choices",
              "Margins are taken to move by at least 3.2 standard deviations.",
              "The largest margin of a measured flip; decision 0008.",
              "build/cpu/bin/analysis_test --gtest_filter=RoutingCheck.*"},
    LedgerRow{Allowance::kBehindFlips,
              AllowanceScope::kNoise,
              "behind-flips",
              "What differs behind a token that goes to other experts is undecided where the "
              "reference did not follow.",
              "What comes after a flip is another computation; decision 0008.",
              "build/cpu/bin/analysis_test --gtest_filter=RoutingCheck.*"},
};

}  // namespace ttrace
