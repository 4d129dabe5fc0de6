// Rows of the ledger of limits: operators (T1), the golden pass, what must be equal nearly.
#pragma once

#include "analysis/bounds/allowance.h"

#include <array>

namespace ttrace {

inline constexpr std::array kOperatorRows = {
    LedgerRow{
        Allowance::kRingSums,
        AllowanceScope::kForced,
        "ring-sums",
        "The squared scale of a gradient of an attention core's inputs grows by as many of the "
        "operators' own roundings as a ring has further ranks, twice: a part and a sum of each.",
        "Ring attention adds up rounded parts that no sum over ranks tells of: R 2.8 with "
        "four ranks over 116 BF16 layouts, 1.1 without a ring over 140.",
        "./dev fuzz-layouts 5 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{
        Allowance::kBiasRounding,
        AllowanceScope::kForced,
        "bias-rounding",
        "An operator's own error is taken to be at least one rounding of the bias that a "
        "module adds to its output, in every feature of its own.",
        "A kernel may round a product before its bias is added. Where the bias nearly cancels "
        "the product, the result tells nothing of its size: features reached 2.9 times their "
        "own rounding.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=OperatorPartsTest."
        "AFeatureWhoseBiasCancelsItsProductMayErrByARoundingOfTheBias"},
    LedgerRow{Allowance::kPartsOfInputGradients,
              AllowanceScope::kForced,
              "parts-of-input-gradients",
              "Parts of gradients of an attention core's inputs are not judged by their operators.",
              "They cancel in the rows of a document's first tokens: clean rows reached 10 in a "
              "ring and 3.1 elsewhere.",
              "./dev fuzz-layouts 5 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{Allowance::kRoundingFloor,
              AllowanceScope::kForced,
              "rounding-floor",
              "An operator's own error is taken to be at least one rounding of its result.",
              "The result of the native pass may be exact by chance.",
              "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{
        Allowance::kRoundedSums,
        AllowanceScope::kForced,
        "rounded-sums",
        "The squared scale of an operator grows by what a sum over ranks rounds, also where the "
        "placement alone tells of it.",
        "Outputs of row-parallel linears have R 1.62 at tp 2 and 1.92 at tp 4 without it.",
        "./dev fuzz-layouts 2 9101 --precision bf16 --keep-clean DIR"},
    LedgerRow{
        Allowance::kStoredAddends,
        AllowanceScope::kForced,
        "stored-addends",
        "The squared scale of an operator grows by the rounding of addends that ranks hold.",
        "Gradients of weights under context parallelism are stored as addends.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=AddendCheckTest.PercentMissingInOneAddendIsFoundThoughTheWholeIsWithin"},
    LedgerRow{Allowance::kBucketSums,
              AllowanceScope::kForced,
              "bucket-sums",
              "The squared scale of a main gradient in BF16 grows by what adding up the ranks' "
              "gradients rounds.",
              "Clean DDP and FSDP2 runs over four ranks alarmed in BF16, R 2.08.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorCheckTest.MainGradsInBf16RoundWhatRanksAddUp"},
    LedgerRow{Allowance::kUnrecordedAddends,
              AllowanceScope::kForced,
              "unrecorded-addends",
              "The squared scale of a main gradient whose addends were not recorded grows by one "
              "rounding of the parameter's type, and by what ranks with the same samples round "
              "when they add up gradients of their tokens or heads.",
              "FSDP2 reduces gradients before anyone sees them.",
              "./dev fuzz-layouts 10 9101 --precision bf16 --keep-clean DIR"},
    LedgerRow{
        Allowance::kClippingNorm,
        AllowanceScope::kForced,
        "clipping-norm",
        "Moments may carry the factor by which the norm that gradients are clipped by is off, up "
        "to a sum of squares in F32 and two roundings to the gradients' own type, and one rounding "
        "of the coefficient where the norm is a number of that type.",
        "Second moments of a clean Megatron-core run alarmed in BF16, R 3.9.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=OperatorPartsTest.MomentsMayCarryWhatTheClippingNormIsOffBy"},
    LedgerRow{Allowance::kClippingRoundings,
              AllowanceScope::kForced,
              "clipping-roundings",
              "The factor of a first moment may carry three roundings of F32, that of a second "
              "moment six.",
              "Second moments of a distributed optimizer alarmed in F32, a factor of 1 + 2.1e-7.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorPartsTest.MomentsMayCarryAnotherRoundingOfTheClippingFactor"},
    LedgerRow{Allowance::kUpdateRounding,
              AllowanceScope::kForced,
              "update-rounding",
              "An update in F32 may round twice, and its step as a sum does.",
              "The decay and the step; a program computes the factors of a step in any way.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorCheckTest.MastersAreJudgedByTwoRoundingsAndTheStep"},
    LedgerRow{Allowance::kOtherGrid,
              AllowanceScope::kForced,
              "other-grid",
              "Where the candidate stores a multiple by no power of two, one rounding counts as "
              "the largest one, 2.4 times the usual.",
              "With 3 data-parallel ranks gradients of logits alarmed, R 2.04: equal elements all "
              "have one error.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorPartsTest."
              "MultiplesThatRoundOnAnotherGridMayHaveTheLargestErrorOfOneRounding"},
    LedgerRow{
        Allowance::kOtherGridCodes,
        AllowanceScope::kForced,
        "other-grid-codes",
        "The same with FP8 operands: the squared scale of gradients grows by one rounding to E5M2.",
        "Some codes flip on another grid.",
        "./dev fuzz-layouts 4 9103 --precision fp8 --keep-clean DIR"},
    LedgerRow{Allowance::kOtherGridParts,
              AllowanceScope::kForced,
              "other-grid-parts",
              "The same with FP8 operands: parts and factors are not judged by their operators.",
              "Codes that flip change a few rows only, and by a few large steps.",
              "./dev fuzz-layouts --case 'precision=fp8 seed=108 masked=1 tied=1 recipe=3 cp=3 "
              "micro_batches=4 batch=4 sequence=36 vocabulary=271 ffn=36 heads=6 groups=2 "
              "head_size=16' --keep-clean DIR"},
    LedgerRow{
        Allowance::kNothingButNoise,
        AllowanceScope::kForced,
        "nothing-but-noise",
        "A tensor that noise passes move by more than its norm is not judged by its operators.",
        "Gradients of keys' biases had R 2.5 to 4.3 in clean F32 runs.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=OperatorCheckTest.OperatorsOfATensorThatIsNothingButNoiseAreNotJudged"},
    LedgerRow{Allowance::kOwnSpread,
              AllowanceScope::kForced,
              "own-spread",
              "The factor of an operator or of an addend may be 5 times the spread of the "
              "candidate's own slices or elements.",
              "Five standard deviations, once in 10^6; outputs of row-parallel linears alarmed in "
              "BF16, a factor of 1 + 0.0002, because a product was rounded before its bias was "
              "added, alike in all rows of a column.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorPartsTest.RoundingsThatAColumnSharesAreNoFactor"},
    LedgerRow{Allowance::kFewSlices,
              AllowanceScope::kForced,
              "few-slices",
              "The spread of a factor is taken over dimensions of 32 indices and more.",
              "Fewer slices are too few to estimate a variance.",
              "build/cpu/bin/analysis_test --gtest_filter=Ledger.EveryRowChangesABoundOrAVerdict"},
    LedgerRow{Allowance::kNativeFactor,
              AllowanceScope::kForced,
              "native-factor",
              "The noise of an operator's factor grows by the native pass's own factor.",
              "A kernel of the reference may round with a bias.",
              "./dev fuzz-layouts 1 9103 --precision fp8 --keep-clean DIR"},
    LedgerRow{Allowance::kOperatorFactorRounding,
              AllowanceScope::kForced,
              "operator-factor-rounding",
              "The noise of an operator's factor grows by one rounding of F32.",
              "Programs keep factors in F32.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorPartsTest.MomentsMayCarryAnotherRoundingOfTheClippingFactor"},
    LedgerRow{Allowance::kPowersOfTwo,
              AllowanceScope::kAny,
              "powers-of-two",
              "Where gradients are multiples by no power of two, the factor is taken out of scales "
              "that are powers of two.",
              "Such a scale cannot follow the factor: 1.8 times its bound in a clean MXFP8 run.",
              "./dev fuzz-layouts --case 'precision=fp8 seed=108 masked=1 tied=1 recipe=3 cp=3 "
              "micro_batches=4 batch=4 sequence=36 vocabulary=271 ffn=36 heads=6 groups=2 "
              "head_size=16' --keep-clean DIR"},
    LedgerRow{Allowance::kHiddenChoices,
              AllowanceScope::kForced,
              "hidden-choices",
              "Operators that follow from choices of experts inside of compiled code are not "
              "checked on their own.",
              "A forced pass cannot follow choices that nobody recorded: four experts of 64 had "
              "gradients 15 to 21 % off, the others 1 %, because two tokens whose scores nearly "
              "tied went elsewhere.",
              "ttrace check of tests/frameworks/titan/train.py --model qwen3_moe --layers 2 "
              "--precision bf16 --compile aot_eager, candidate with --dp 2 --tp 2"},
    LedgerRow{Allowance::kAddedUp,
              AllowanceScope::kForced,
              "added-up",
              "An error of up to 2 times the bound of T2 is no finding where all operators up to "
              "there are right.",
              "Clean runs with right operators reached 1.08 times the bound of a whole tensor and "
              "1.36 times that of a factor (40 random BF16 layouts); 1.5 times that.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorCheckTest.RoundingsThatAddedUpAreInherited"},
    LedgerRow{Allowance::kOverflows,
              AllowanceScope::kForced,
              "overflows",
              "Where all operators up to there are right, an Inf that one side alone has counts as "
              "65520, the smallest number that overflows in F16, and what follows from it is no "
              "finding.",
              "One gradient of 1024 was 65472 on one device and Inf under tp 2.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OverflowTest.OneNumberThatOverflowsOnOneSideAloneIsInherited"},
    LedgerRow{Allowance::kBehindFindings,
              AllowanceScope::kForced,
              "behind-findings",
              "An error of any size is no finding of its own behind a finding, where the tensor's "
              "own operators are right.",
              "The operators passed on what they were given.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=OperatorCheckTest.WhatFollowsFromAWrongTensorIsInherited"},
    LedgerRow{Allowance::kKnownFormula,
              AllowanceScope::kForced,
              "known-formula",
              "Addends are judged where a formula gives their sum up to 1 %.",
              "A formula that is not that of the module judges nothing.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=AddendCheckTest.GradientOfAnUnknownOperatorHasNoCheckOfAddends"},
    LedgerRow{Allowance::kNativeAddends,
              AllowanceScope::kForced,
              "native-addends",
              "The squared scale of an addend grows by its part of what the native pass errs "
              "beyond a rounding.",
              "A kernel that accumulates in low precision errs in each of its terms.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=AddendCheckTest.KernelThatAccumulatesCoarselyIsCheckedWeakly"},
    LedgerRow{Allowance::kLeastRho,
              AllowanceScope::kGolden,
              "least-rho",
              "A candidate may be a quarter as far from FP64 as the reference.",
              "Less than half the smallest clean ratio over 20 random BF16 layouts: 0.72 of "
              "activations, 0.59 of their gradients.",
              "./dev fuzz-layouts --case 'precision=bf16 tp=4 micro_batches=16 layers=2 heads=4' "
              "--keep-clean DIR --golden"},
    LedgerRow{Allowance::kLeastRhoOfWeights,
              AllowanceScope::kGolden,
              "least-rho-of-weights",
              "A gradient of a weight may be 0.15 times as far from FP64.",
              "Half the smallest clean ratio, 0.34.",
              "build/cpu/bin/analysis_test --gtest_filter=Ledger.EveryRowChangesABoundOrAVerdict"},
    LedgerRow{Allowance::kLeastRhoOfVectors,
              AllowanceScope::kGolden,
              "least-rho-of-vectors",
              "A gradient of a vector is never too accurate.",
              "Kernels reduce it in low precision inside, and a sum over fewer tokens on each rank "
              "may be much better.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=GoldenCheckTest.GradientOfAVectorMayBeMuchBetterThanTheReferences"},
    LedgerRow{Allowance::kLeastRhoOfSums,
              AllowanceScope::kGolden,
              "least-rho-of-sums",
              "In F32 a candidate may be 0.4 times as far again.",
              "Errors are those of sums alone, which are smaller where ranks add up fewer terms; "
              "smallest clean ratio 0.29.",
              "build/cpu/bin/analysis_test --gtest_filter=Ledger.EveryRowChangesABoundOrAVerdict"},
    LedgerRow{
        Allowance::kLargestRho,
        AllowanceScope::kGolden,
        "largest-rho",
        "A candidate may be 3.5 times as far from FP64 as the reference.",
        "Twice the largest clean ratio, 1.74.",
        "./dev fuzz-layouts --case 'precision=fp8 seed=753 zero1=1 dropout=10 recipe=2 dp=2 "
        "steps=2 micro_batches=8 batch=3 sequence=60 ffn=48 heads=4' --keep-clean DIR --golden"},
    LedgerRow{Allowance::kLargestRhoOfGradients,
              AllowanceScope::kGolden,
              "largest-rho-of-gradients",
              "A gradient may be 6.2 times as far from FP64 as the reference.",
              "Twice the largest clean ratio, 3.1.",
              "build/cpu/bin/analysis_test --gtest_filter=Ledger.EveryRowChangesABoundOrAVerdict"},
    LedgerRow{Allowance::kGoldenRoundings,
              AllowanceScope::kGolden,
              "golden-roundings",
              "A tensor is never too accurate where the reference is off by 2 roundings or less.",
              "Storing the candidate's value costs one rounding.",
              "./dev fuzz-layouts --case 'precision=fp8 seed=108 masked=1 tied=1 recipe=3 cp=3 "
              "micro_batches=4 batch=4 sequence=36 vocabulary=271 ffn=36 heads=6 groups=2 "
              "head_size=16' --keep-clean DIR --golden"},
    LedgerRow{
        Allowance::kFewGoldenElements,
        AllowanceScope::kGolden,
        "few-golden-elements",
        "A tensor of fewer than 32 elements is not compared with FP64.",
        "A ratio of two single numbers may be anything: the reference's loss may be exact by "
        "chance.",
        "build/cpu/bin/analysis_test --gtest_filter=GoldenCheckTest.ALossThatIsExactByChance*"},
    LedgerRow{Allowance::kFirstGoldenStep,
              AllowanceScope::kGolden,
              "first-golden-step",
              "Only the first traced step is compared with FP64.",
              "A clean FP8 run of two steps alarmed at the embedding of the second one.",
              "./dev fuzz-layouts --case 'precision=bf16 seed=4 dp=2 tp=2 sp=1 steps=2 layers=2 "
              "micro_batches=4 batch=2' --keep-clean DIR --golden"},
    LedgerRow{Allowance::kCollectiveSums,
              AllowanceScope::kAny,
              "collective-sums",
              "A collective's sum may be as far off as any order of its addends makes it.",
              "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.",
              "build/cpu/bin/analysis_test --gtest_filter=SelfChecks.SumInAnyOrderIsRight"},
    LedgerRow{
        Allowance::kNormTolerance,
        AllowanceScope::kAny,
        "norm-tolerance",
        "A gradient norm may be 0.1 % away from that of the main gradients, and two roundings more "
        "where it is a number of a lower type. Where the two sides' norms differ by what a serial "
        "sum rounds, they are inherited, and so is what the optimizer makes of clipped gradients.",
        "Programs add the squares up in F32 in any order.",
        "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{Allowance::kLossTolerance,
              AllowanceScope::kAny,
              "loss-tolerance",
              "A mean loss may be 0.01 % away from the mean of the losses.",
              "Programs add up thousands of numbers in F32.",
              "./dev fuzz-layouts 1 9102 --precision f32 --keep-clean DIR"},
    LedgerRow{Allowance::kFewCodes,
              AllowanceScope::kAny,
              "few-codes",
              "A scale that is a power of two times the reference's may saturate or flush 0.1 % "
              "more of the codes.",
              "The largest element of a tensor always is at the largest number or the one below.",
              "build/cpu/bin/analysis_test "
              "--gtest_filter=Codes.AScaleThatSaturatesOrLosesMoreThanOneInAThousandKeepsNone"},
    LedgerRow{
        Allowance::kHarmlessScales,
        AllowanceScope::kAny,
        "harmless-scales",
        "A scale that is a power of two times the reference's and keeps the codes is no finding.",
        "Codes keep their bits and products too; a margin in a recipe does it.",
        "build/cpu/bin/analysis_test "
        "--gtest_filter=QuantisedInput.AScaleThatIsTwiceTheReferencesIsHarmlessAndSaidOnce"},
};

}  // namespace ttrace
