#include "analysis/bounds/bounds.h"

#include "analysis/bounds/gradient_factors.h"
#include "analysis/bounds/limits.h"
#include "analysis/bounds/spread.h"
#include "analysis/findings/wording.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/unit_in_last_place.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using testing::noise_row;

// Three elements, ||r|| = 5, max |r| = 4.
Statistics small_statistics() {
  const std::vector<double> values{3.0, 0.0, 4.0};
  return compare(ElementType::kF64, values.data(), ElementType::kF64, values.data(), 3);
}

std::vector<NoisePass> passes(const std::vector<NoiseRow>& rows, int count = 5) {
  std::vector<NoisePass> result;
  for (int seed = 1; seed <= count; ++seed) {
    result.push_back({seed, rows});
  }
  return result;
}

// The reference's side of a match: all that the pools need to know of a tensor.
class ReferenceTensors {
 public:
  void add(const std::string& id,
           std::vector<std::int64_t> shape,
           double norm = 0.0,
           double max_abs = 0.0) {
    records_.push_back(std::make_unique<Record>());
    Record& record = *records_.back();
    record.id = parse_tensor_id(id);
    record.placement = whole(shape);
    record.norm = norm;
    record.max_abs = max_abs;
    record.shape = std::move(shape);
    matches_.push_back({});
    matches_.back().id = record.id;
    matches_.back().reference = {Shard{0, &record, {}}};
  }
  [[nodiscard]] const std::vector<Match>& matches() const { return matches_; }

 private:
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<Match> matches_;
};

Bound bound_of(const std::string& id,
               const NoiseModel& noise,
               ElementType type = ElementType::kF64,
               std::size_t dimensions = 2) {
  const TensorId tensor = parse_tensor_id(id);
  return Bounds(noise, ElementType::kBF16, true).of({tensor, dimensions, type, small_statistics()});
}

TEST(Limits, EveryClassAndStatisticHasItsNameAndLimit) {
  std::set<std::string_view> names;
  for (const TensorClass tensor_class : kTensorClasses) {
    EXPECT_TRUE(names.insert(name_of(tensor_class)).second);
    EXPECT_GT(default_factor(tensor_class, 0), 1.0);
  }
  for (const Statistic statistic : kStatistics) {
    EXPECT_TRUE(names.insert(name_of(statistic)).second);
  }
  EXPECT_EQ(name_of(TensorClass::kScalar), "scalar");
  EXPECT_EQ(shipped_factor(Statistic::kOfReference), 1.25);
  EXPECT_EQ(shipped_factor(Statistic::kOfOperators), 1.25);
  EXPECT_EQ(shipped_factor(Statistic::kFactorOfOperators), 1.0);
}

// Symptom: without noise passes, a clean F32 run of two steps diverged at the embedding of the
// second one, whose gradients were then off by up to 122 roundings.
TEST(Limits, WithoutNoiseAllClassesHaveOneWiderFactorAfterTheFirstUpdate) {
  EXPECT_EQ(default_factor(TensorClass::kActivation, 0), 12.0);
  for (const TensorClass tensor_class : kTensorClasses) {
    EXPECT_EQ(default_factor(tensor_class, 1), 250.0);
  }
}

TEST(Limits, CalibratedOnesReplaceTheirShippedOnesAlone) {
  Limits limits;
  limits.calibrate(Statistic::kOfReference, 1.75);
  EXPECT_EQ(limits.of(Statistic::kOfReference), 1.75);
  EXPECT_EQ(limits.of(Statistic::kOfOperators), 1.25);
  EXPECT_FALSE(limits.is_calibrated(Statistic::kOfOperators));
}

TEST(Limits, InFp8ScalarsAreRoundedAsInBf16) {
  EXPECT_EQ(rounding_of_scalars(ElementType::kE4M3), rounding_error(ElementType::kBF16));
  EXPECT_EQ(rounding_of_scalars(ElementType::kF32), rounding_error(ElementType::kF32));
  EXPECT_DOUBLE_EQ(unit_of(ElementType::kE4M3), 0.4 * 0.0265);
}

TEST(Limits, GradientsOfOneDimensionAreVectors) {
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/main_grad/fc/0"), 1), TensorClass::kVector);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/main_grad/fc/0"), 2), TensorClass::kWeightGradient);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/exp_avg_sq/fc/0"), 1), TensorClass::kVector);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/master/fc/0"), 1), TensorClass::kOptimizerVector);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/param_next/fc/0"), 2), TensorClass::kOptimizerMatrix);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/output/fc/0"), 1), TensorClass::kActivation);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/grad_output/fc/0"), 3),
            TensorClass::kActivationGradient);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/grad_input/fc/0"), 3),
            TensorClass::kActivationGradient);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/scale/fc/0"), 0), TensorClass::kScale);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/amax_history/fc/0"), 1), TensorClass::kScale);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/operand/fc/1"), 2), TensorClass::kActivation);
  EXPECT_EQ(class_of(parse_tensor_id("s0/m0/operand/fc/2"), 3), TensorClass::kActivationGradient);
}

TEST(Ulp, OfAPowerOfTwoFormatIsTheNumberItself) {
  EXPECT_EQ(unit_in_last_place(ElementType::kE8M0, 0.25), 0.25);
  EXPECT_EQ(unit_in_last_place(ElementType::kE4M3, 1.0), 0.125);
  EXPECT_EQ(unit_in_last_place(ElementType::kE5M2, 0.0), std::ldexp(1.0, -16));
}

// Symptom: a clean BF16 run alarmed in its second step, Q 2.05: Adam had changed the sign of one
// update, in the candidate and in one pass of five, and a bias added it to all rows.
TEST(Bounds, AllowWhatOnePassOfFiveDidAlone) {
  const std::string id = "s1/m0/output/a/0";
  ReferenceTensors reference;
  reference.add(id, {3, 1});
  const auto bound_with = [&](double largest) {
    std::vector<NoisePass> noise;
    for (int number = 1; number <= 5; ++number) {
      const double norm = number == 2 ? largest : 0.0034;
      noise.push_back({number, {{parse_tensor_id(id), norm * norm, 0.002, 0}}});
    }
    return bound_of(id, NoiseModel(noise, reference.matches()));
  };
  const Bound bound = bound_with(0.019);
  EXPECT_LT(bound.ratio.value().freedom, 1.0);
  EXPECT_GT(bound.value, 1.2 * 0.019);
  EXPECT_LT(2.0 * bound.scale.value(), 0.0187);
  EXPECT_LT(bound_with(0.0035).value, 0.019);
}

// An amax is one element, which moves in some passes only: in micro-batch 1, whose scale is twice
// as large, it moved by 0.5, in micro-batch 0 and in another tensor in no pass.
TEST(Bounds, OfAScaleAllowForMovesThatItMadeInOtherMicrobatches) {
  ReferenceTensors tensors;
  tensors.add("s0/m0/scale/a/0", {3}, 5.0, 4.0);
  tensors.add("s0/m1/scale/a/0", {2}, 10.0, 8.0);
  tensors.add("s0/m0/scale/b/0", {3}, 5.0, 4.0);
  tensors.add("s0/m0/scale/a/1", {3}, 5.0, 4.0);
  const NoiseModel noise(passes({noise_row("s0/m0/scale/a/0", 0.0, 0.0),
                                 noise_row("s0/m1/scale/a/0", 0.5, 0.5),
                                 noise_row("s0/m0/scale/b/0", 0.0, 0.0),
                                 noise_row("s0/m0/scale/a/1", 0.0, 0.0)}),
                         tensors.matches());
  const double two_ulps = 2.0 / 32.0;  // of 4 in BF16
  // w = 0.5 / 8, max |r| = 4.
  EXPECT_NEAR(bound_of("s0/m0/scale/a/0", noise).scale.value(),
              std::sqrt(0.25 * 0.25 + two_ulps * two_ulps),
              1e-12);
  EXPECT_NEAR(bound_of("s0/m0/scale/b/0", noise).scale.value(), two_ulps, 1e-12);
  // Weights have a slot of their own, in which nothing moved.
  EXPECT_EQ(bound_of("s0/m0/scale/a/1", noise).value, 0.0);
}

TEST(Ulp, IsTheDistanceToTheNextNumberOfTheType) {
  EXPECT_EQ(unit_in_last_place(ElementType::kBF16, 1.0), std::ldexp(1.0, -7));
  EXPECT_EQ(unit_in_last_place(ElementType::kBF16, -3.9), std::ldexp(1.0, -6));
  EXPECT_EQ(unit_in_last_place(ElementType::kF16, 1e-7), std::ldexp(1.0, -24));
  EXPECT_EQ(unit_in_last_place(ElementType::kF32, 2.0),
            static_cast<double>(std::nextafter(2.0F, 3.0F)) - 2.0);
  EXPECT_EQ(unit_in_last_place(ElementType::kF64, 0.0), std::ldexp(1.0, -1074));
}

TEST(Bounds, StructuralKindsAndIntegersMustBeEqualEvenWithNoise) {
  const NoiseModel noise(passes({noise_row("s0/param/w/0", 1.0, 1.0)}), {});
  EXPECT_EQ(bound_of("s0/param/w/0", noise).value, 0.0);
  EXPECT_EQ(bound_of("s0/param/w/0", noise).source, "exact (param)");
  EXPECT_EQ(bound_of("s0/m0/draw/a/0", noise).source, "exact (draw)");
  EXPECT_EQ(bound_of("s0/m0/output/a/0", noise, ElementType::kI64).source, "exact (i64)");
  EXPECT_EQ(bound_of("s0/m0/data/tokens/0", noise).origin, BoundOrigin::kExact);
}

TEST(Bounds, ParametersOfLaterStepsHavePassedThroughUpdates) {
  const NoiseModel none({}, {});
  EXPECT_EQ(bound_of("s1/param/w/0", none).origin, BoundOrigin::kClassDefault);
}

// A tensor of three elements has at most three degrees of freedom, and five passes tell five times
// as many.
TEST(Bounds, AreTheRatioLimitTimesTheNoise) {
  const NoiseModel noise(passes({noise_row("s0/m0/output/a/0", 0.5, 0.4)}), {});
  const Bound activation = bound_of("s0/m0/output/a/0", noise);
  const RatioLimit limit = ratio_limit(1.25, 3.0, 15.0, kFalseAlarmsPerRun / 3.0);
  ASSERT_TRUE(activation.ratio);
  EXPECT_EQ(activation.ratio->freedom, limit.freedom);
  EXPECT_EQ(activation.ratio->freedom_of_estimate, limit.freedom_of_estimate);
  EXPECT_DOUBLE_EQ(activation.value, limit.value * 0.5);
  EXPECT_DOUBLE_EQ(activation.scale.value(), 0.5);
  EXPECT_EQ(activation.source, "5 noise passes x " + short_number(limit.value));
  EXPECT_EQ(activation.origin, BoundOrigin::kNoise);
}

// A step of more tensors must not alarm more often.
TEST(Bounds, AllTensorsOfARunShareTheRateOfFalseAlarms) {
  ReferenceTensors reference;
  std::vector<NoiseRow> rows;
  for (int module = 0; module < 100; ++module) {
    const std::string id = "s0/m0/output/" + std::to_string(module) + "/0";
    reference.add(id, {3, 1});
    rows.push_back(noise_row(id, 0.5, 0.4));
  }
  const NoiseModel many(passes(rows), reference.matches());
  const RatioLimit limit = bound_of("s0/m0/output/7/0", many).ratio.value();
  EXPECT_LE(limit.by_chance, kFalseAlarmsPerRun / 300.0);
  EXPECT_GT(limit.by_chance, kFalseAlarmsPerRun / 340.0);
}

// Vectors and matrices of one kind vary in their own ways.
TEST(Bounds, FreedomIsThatOfTensorsOfOneKindAndRank) {
  ReferenceTensors reference;
  std::vector<NoisePass> noise(5);
  for (int module = 0; module < 20; ++module) {
    const std::string name = std::to_string(module);
    const std::string matrix = "s0/main_grad/" + name + ".weight/0";
    const std::string vector = "s0/main_grad/" + name + ".bias/0";
    reference.add(matrix, {100, 10});
    reference.add(vector, {100});
    for (int seed = 1; seed <= 5; ++seed) {
      NoisePass& pass = noise[static_cast<std::size_t>(seed) - 1];
      pass.seed = seed;
      pass.rows.push_back(testing::as_pass(noise_row(matrix, 0.5, 0.4), {100, 10}, seed));
      pass.rows.push_back(testing::as_pass(noise_row(vector, 0.5, 0.4), {4}, seed));
    }
  }
  const NoiseModel model(noise, reference.matches());
  const KindNoise kind = model.of_kind(parse_tensor_id("s0/main_grad/0.weight/0"));
  EXPECT_GT(kind.spread(2).squared.freedom(), 150.0);
  EXPECT_NEAR(kind.spread(1).squared.freedom(), 4.0, 0.2);
}

TEST(Bounds, AverageTheSquaresOfThePasses) {
  std::vector<NoisePass> different = passes({noise_row("s0/m0/output/a/0", 3.0, 1.0)}, 2);
  different[1].rows[0].sum_squared = 25.0;
  EXPECT_DOUBLE_EQ(bound_of("s0/m0/output/a/0", NoiseModel(different, {})).scale.value(),
                   std::sqrt((9.0 + 25.0) / 2.0));
}

TEST(Bounds, AdmitTwoFlipsOfTheLargestElementInLowPrecision) {
  const NoiseModel noise(passes({noise_row("s0/m0/output/a/0", 1e-6, 1e-6)}), {});
  const double ulp = std::ldexp(1.0, 2 - 7);  // of 4 in bf16
  EXPECT_NEAR(bound_of("s0/m0/output/a/0", noise, ElementType::kBF16).scale.value(), 2 * ulp, 1e-9);
}

TEST(Bounds, DemandEqualityWhereAllPassesReproducedTheReference) {
  const NoiseModel noise(passes({noise_row("s0/m0/output/a/0", 0.0, 0.0)}), {});
  const Bound bound = bound_of("s0/m0/output/a/0", noise, ElementType::kBF16);
  EXPECT_EQ(bound.value, 0.0);
  EXPECT_EQ(bound.source, "equal in all 5 noise passes");
  EXPECT_EQ(bound.origin, BoundOrigin::kNoise);
}

// Symptom: an embedding in BF16 was right and diverged in the second step, at two elements whose
// masters had moved across the middle between two numbers, which they did in no noise pass.
TEST(Bounds, BehindAnUpdateThatMovedNothingMustBeEqual) {
  ReferenceTensors tensors;
  for (const char* id : {"s0/main_grad/w/0", "s0/m0/output/e/0", "s1/m0/output/e/0"}) {
    tensors.add(id, {3, 1});
  }
  const NoiseModel noise(passes({noise_row("s0/main_grad/w/0", 0.5, 0.5),
                                 noise_row("s0/m0/output/e/0", 0.0, 0.0),
                                 noise_row("s1/m0/output/e/0", 0.0, 0.0)}),
                         tensors.matches());
  EXPECT_EQ(bound_of("s0/m0/output/e/0", noise, ElementType::kBF16).value, 0.0);
  const Bound bound = bound_of("s1/m0/output/e/0", noise, ElementType::kBF16);
  EXPECT_DOUBLE_EQ(bound.scale.value(), 2 * unit_in_last_place(ElementType::kBF16, 4.0));
  EXPECT_EQ(bound.origin, BoundOrigin::kNoise);
}

// Symptom: a running variance, updated as a + m (b - a) on one side and as (1 - m) a + m b on the
// other, was accused of one unit in the last place, because no pass moved it.
TEST(Bounds, WhatTrainingKeepsIsRoundedByItsOwnFormula) {
  for (const char* id : {"s0/buffer/bn.running_var/0", "s0/copy/a.weight.ema/0"}) {
    const NoiseModel noise(passes({noise_row(id, 0.0, 0.0)}), {});
    const double flips = 2.0 * std::ldexp(1.0, 2 - 23);  // of 4 in f32
    const double rounding = 5.0 * std::ldexp(1.0, -23);  // of a norm of 5
    EXPECT_NEAR(
        bound_of(id, noise, ElementType::kF32).scale.value(), std::hypot(flips, rounding), 1e-12)
        << id;
  }
}

// Layers of kernels that torch does not dispatch had to be equal in every bit, because no pass
// moved them.
TEST(Bounds, OfWhatNoNoiseReachedAreThoseOfItsClass) {
  const std::string id = "s0/m0/output/a/0";
  const auto bound = [&](std::optional<bool> covered, double norm) {
    NoiseRow row = noise_row(id, norm, norm);
    row.covered = covered;
    return bound_of(id, NoiseModel(passes({row}), {}));
  };
  const Bound untouched = bound(false, 0.0);
  EXPECT_DOUBLE_EQ(untouched.value, 12.0 * rounding_error(ElementType::kBF16) * 5.0);
  EXPECT_EQ(untouched.source,
            "class default (code that torch does not dispatch made it, and no noise reached it)");
  EXPECT_EQ(bound(true, 0.0).value, 0.0);
  EXPECT_EQ(bound(std::nullopt, 0.0).value, 0.0);  // tables of earlier versions do not tell
  EXPECT_EQ(bound(false, 0.1).origin, BoundOrigin::kNoise);  // noise came with its inputs
}

// A cut made a kernel round the operands of a product that it does not round on one device: a clean
// output was 4000 times its bound away.
TEST(Bounds, WhereOperandsOfProductsAreRoundedAreClassDefaults) {
  const std::string id = "s0/m0/output/a/0";
  const NoiseModel noise(passes({noise_row(id, 1e-6, 1e-6)}), {});
  const auto bound = [&](bool has_row) {
    Allowances allowances;
    if (!has_row) {
      allowances.remove(Allowance::kRoundedProducts);
    }
    const TensorId tensor = parse_tensor_id(id);
    return Bounds(noise, ElementType::kF16, true, Limits(allowances), true)
        .of({tensor, 2, ElementType::kF32, small_statistics()});
  };
  EXPECT_EQ(bound(true).source, "class default (operands of products are rounded)");
  EXPECT_EQ(bound(false).origin, BoundOrigin::kNoise);
}

TEST(Bounds, GiveScalarsOneRoundingOfTheComputingPrecision) {
  const NoiseModel noise(passes({noise_row("s0/scalar/loss/0", 1e-6, 1e-6)}), {});
  const Bound bound = bound_of("s0/scalar/loss/0", noise, ElementType::kF64, 0);
  EXPECT_NEAR(bound.scale.value(), rounding_error(ElementType::kBF16) * 5.0, 1e-8);
}

// Symptom: without forced passes, a clean run of torchtitan in BF16 diverged at its loss, one
// number that was 2.5 times its noise scale away.
TEST(Bounds, OfATensorOfOneElementAreWide) {
  const NoiseModel noise(passes({noise_row("s0/m0/loss/loss/0", 0.5, 0.5)}), {});
  const double value = 4.0;
  const Statistics one = compare(ElementType::kF64, &value, ElementType::kF64, &value, 1);
  const TensorId loss = parse_tensor_id("s0/m0/loss/loss/0");
  const Bound bound = Bounds(noise, ElementType::kBF16, true).of({loss, 1, ElementType::kF64, one});
  EXPECT_DOUBLE_EQ(bound.ratio.value().freedom, 1.0);
  EXPECT_GT(bound.value, 2.0 * 2.5 * 0.5);
  EXPECT_GT(bound.value, bound_of("s0/m0/loss/loss/0", noise, ElementType::kF64, 1).value);
}

TEST(Bounds, OfOptimizerResultsKnowTheFlipsOfOtherTensorsOfTheirKind) {
  ReferenceTensors tensors;
  tensors.add("s0/master/big/0", {100, 10});
  tensors.add("s0/master/small/0", {3, 1});
  tensors.add("s1/master/small/0", {3, 1});  // another step has its own pool
  const NoiseModel noise(passes({noise_row("s0/master/big/0", 2.0, 0.5),
                                 noise_row("s0/master/small/0", 0.0, 0.0),
                                 noise_row("s1/master/small/0", 0.0, 0.0)}),
                         tensors.matches());
  EXPECT_DOUBLE_EQ(noise.of_kind(parse_tensor_id("s0/master/big/0")).largest, 0.5);
  // Never moved itself, yet a flip of its three elements must pass.
  const TensorId small = parse_tensor_id("s0/master/small/0");
  Statistics flip = small_statistics();
  flip.max_difference = 0.5;
  const Bound bound =
      Bounds(noise, ElementType::kBF16, true).of({small, 2, ElementType::kF64, flip});
  EXPECT_DOUBLE_EQ(bound.scale.value(), 1.5);
  EXPECT_LT(bound_of("s1/master/small/0", noise).value, 1e-14);
}

TEST(Bounds, FallBackToClassDefaultsAndSayWhy) {
  const double unit = rounding_error(ElementType::kBF16) * 5.0;
  const Bound none = bound_of("s0/m0/output/a/0", NoiseModel({}, {}));
  EXPECT_DOUBLE_EQ(none.value, 12.0 * unit);
  EXPECT_EQ(none.source, "class default (no noise stored)");
  EXPECT_EQ(none.scale, std::nullopt);

  std::vector<NoisePass> partial = passes({noise_row("s0/m0/output/a/0", 0.5, 0.4)});
  partial.back().rows.clear();
  EXPECT_EQ(bound_of("s0/m0/output/a/0", NoiseModel(partial, {})).source,
            "class default (not in all noise passes)");

  std::vector<NoisePass> broken = passes({noise_row("s0/m0/output/a/0", 0.5, 0.4)});
  broken.back().rows[0].nonfinite = 1;
  EXPECT_EQ(bound_of("s0/m0/output/a/0", NoiseModel(broken, {})).origin,
            BoundOrigin::kClassDefault);

  const NoiseModel noise(passes({noise_row("s0/m0/output/a/0", 0.5, 0.4)}), {});
  const TensorId id = parse_tensor_id("s0/m0/output/a/0");
  EXPECT_EQ(Bounds(noise, ElementType::kBF16, false)
                .of({id, 2, ElementType::kBF16, small_statistics()})
                .source,
            "class default (precisions differ)");
}

// Symptom: a right resumed run in BF16 was accused of one row of a master: one element of it had
// flipped by two learning rates, where the passes had shown such flips in other rows.
TEST(Bounds, AnyPartMayHoldTheRareEventThatAPassShowsInAnother) {
  NoiseRow row = noise_row("s2/state_before/w.main/0", 1e-2, 1e-2);
  row.slices = {1e-4, 1e-20};
  row.along_reference = 1e-6;
  ReferenceTensors reference;
  reference.add("s2/state_before/w.main/0", {2, 3}, 4.0);
  const NoiseModel noise(passes({row}), reference.matches());
  const TensorId tensor = parse_tensor_id("s2/state_before/w.main/0");
  const auto added = [&](double max_difference) {
    Statistics statistics = small_statistics();
    statistics.max_difference = max_difference;
    return Bounds(noise, ElementType::kBF16, true)
        .of_parts({tensor, 2, ElementType::kF32, statistics})
        ->slices->added_squared;
  };
  EXPECT_NEAR(std::sqrt(added(1.0)), 1e-2, 1e-6);
  // All elements are off by as much: no rare event.
  EXPECT_NEAR(std::sqrt(added(1e-3)), 1e-3, 1e-6);
}

TEST(Bounds, ClassDefaultsOfWidePrecisionsAllowForTheOrderOfSummation) {
  EXPECT_DOUBLE_EQ(unit_of(ElementType::kF32), 12.0 * rounding_error(ElementType::kF32));
  EXPECT_DOUBLE_EQ(unit_of(ElementType::kBF16), rounding_error(ElementType::kBF16));
}

// Symptom: clean BF16 runs at tp 4 with 16 micro-batches alarmed at main gradients.
TEST(Bounds, ASumOverMicrobatchesAllowsThatTheyErrAlike) {
  std::vector<NoiseRow> rows = {noise_row("s0/main_grad/w/0", 4e-3, 1e-3),
                                noise_row("s0/exp_avg/w/0", 2e-3, 1e-3),
                                noise_row("s0/main_grad/v/0", 4e-3, 1e-3)};
  ReferenceTensors reference;
  for (int m = 0; m < 16; ++m) {
    rows.push_back(noise_row("s0/m" + std::to_string(m) + "/param_grad/w/0", 1e-3, 1e-3));
  }
  for (const NoiseRow& row : rows) {
    reference.add(to_string(row.id), {1, 3});
  }
  const NoiseModel noise(passes(rows), reference.matches());
  // s = 4e-3, sum_m s_m = 16e-3.
  const double growth = 4.0;
  EXPECT_NEAR(bound_of("s0/main_grad/w/0", noise).scale.value(), growth * 4e-3, 1e-9);
  EXPECT_NEAR(bound_of("s0/exp_avg/w/0", noise).scale.value(), growth * 2e-3, 1e-9);
  EXPECT_NEAR(bound_of("s0/main_grad/v/0", noise).scale.value(), 4e-3, 1e-9);
  EXPECT_NEAR(bound_of("s0/m3/param_grad/w/0", noise).scale.value(), 1e-3, 1e-9);
}

// Symptom: main gradients of a program that divides them by the step's tokens were not judged,
// because their noise, were it alike, was taken to be 400 times as large as it is.
TEST(Bounds, WhatMicrobatchesErrAlikeIsDividedAsTheirSumIs) {
  std::vector<NoiseRow> rows = {noise_row("s0/main_grad/w/0", 4e-5, 1e-5)};
  testing::TemporaryDirectory folder;
  testing::TraceBuilder reference(folder / "reference", "reference");
  const std::vector<double> values = testing::wavy(12);
  for (int m = 0; m < 16; ++m) {
    const std::string id = "s0/m" + std::to_string(m) + "/param_grad/w/0";
    rows.push_back(noise_row(id, 1e-3, 1e-3));
    reference.add(0, {id, values, ElementType::kF32, {3, 4}});
  }
  reference.add(0, {"s0/main_grad/w/0", testing::scaled(values, 0.16), ElementType::kF32, {3, 4}});
  const Trace trace = reference.write();
  const std::vector<Match> matches = match(trace, trace);
  const GradientFactors factors = gradient_factors(matches);
  EXPECT_NEAR(factors.at(0), 0.01, 1e-6);
  const NoiseModel noise(passes(rows), matches, {}, factors);
  EXPECT_NEAR(bound_of("s0/main_grad/w/0", noise).scale.value(), 0.01 * 16e-3, 1e-8);
}

// Symptom: a clean FP64 run of two steps diverged, Q 2.08 in the keys of its second step.
TEST(Bounds, LaterStepsInheritWhatUpdatesOfBiasesDo) {
  std::vector<NoiseRow> rows = {noise_row("s0/m0/output/a/0", 3e-3, 1e-3),
                                noise_row("s1/m0/output/a/0", 5e-3, 1e-3),
                                noise_row("s1/m0/output/b/0", 1e-3, 1e-3),
                                noise_row("s0/m0/output/b/0", 1e-3, 1e-3)};
  rows[1].slices = {1e-5, 1.5e-5};
  rows[1].along_reference = 1e-4;
  ReferenceTensors reference;
  for (int m = 0; m < 4; ++m) {
    rows.push_back(noise_row("s0/m" + std::to_string(m) + "/param_grad/w/0", 1e-3, 1e-3));
  }
  for (const NoiseRow& row : rows) {
    reference.add(to_string(row.id), {1, 3});
  }
  const NoiseModel noise(passes(rows), reference.matches());
  // Inherited: 5^2 - 3^2 = 4^2.
  EXPECT_NEAR(
      bound_of("s1/m0/output/a/0", noise).scale.value(), std::sqrt(25.0 + 3.0 * 16.0) * 1e-3, 1e-9);
  EXPECT_NEAR(bound_of("s0/m0/output/a/0", noise).scale.value(), 3e-3, 1e-9);
  EXPECT_NEAR(bound_of("s1/m0/output/b/0", noise).scale.value(), 1e-3, 1e-9);

  // Symptom: in the second step of a clean F16 run one column of a gradient had a Q of 10.9, whose
  // scale had nothing of what updates brought.
  const TensorId later = parse_tensor_id("s1/m0/output/a/0");
  const auto parts = Bounds(noise, ElementType::kBF16, true)
                         .of_parts({later, 2, ElementType::kF64, small_statistics()});
  ASSERT_TRUE(parts);
  ASSERT_TRUE(parts->slices);
  EXPECT_EQ(parts->slices->growth, 1.0);
  EXPECT_LT(parts->slices->added_squared, 1e-20);  // what storing the largest element costs
  EXPECT_EQ(parts->slices->inherited, 3.0);
  ASSERT_NE(parts->slices->before, nullptr);
  EXPECT_NEAR(parts->slices->before->mean_squared, 9e-6, 1e-12);

  // Q means the same under another factor, or none could be calibrated.
  Limits limits;
  limits.calibrate(Statistic::kOfReference, 1.5);
  const TensorId id = parse_tensor_id("s1/m0/output/a/0");
  const Bound calibrated = Bounds(noise, ElementType::kBF16, true, limits)
                               .of({id, 2, ElementType::kF64, small_statistics()});
  const Bound shipped = bound_of("s1/m0/output/a/0", noise);
  EXPECT_EQ(calibrated.scale, shipped.scale);
  EXPECT_DOUBLE_EQ(calibrated.value, 1.5 / 1.25 * shipped.value);
}

// Symptom: factors in the second step of clean F16 runs of Megatron-core were 1.6 times their
// bound. An update moves all tensors of a step at once, so that many of a kind are no more samples
// than one.
TEST(Bounds, OfWhatAnUpdateBringsOthersOfTheKindTellNothing) {
  std::vector<NoiseRow> rows;
  ReferenceTensors reference;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 40; ++i) {
      const std::string id = "s" + std::to_string(step) + "/m0/output/t" + std::to_string(i) + "/0";
      rows.push_back(noise_row(id, step == 0 ? 1e-3 : 1e-1, 1e-3));
      rows.back().along_reference = step == 0 ? 1e-4 : 1e-2;
      reference.add(id, {1, 3}, 5.0);
    }
  }
  rows.push_back(noise_row("s0/m0/param_grad/w/0", 1e-3, 1e-3));
  const NoiseModel noise(passes(rows), reference.matches());
  const auto freedom = [&](const std::string& text) {
    const TensorId id = parse_tensor_id(text);
    return Bounds(noise, ElementType::kBF16, true)
        .of_parts({id, 2, ElementType::kF64, small_statistics()})
        ->factor->ratio.freedom_of_estimate;
  };
  EXPECT_GT(freedom("s0/m0/output/t7/0"), 50.0);
  EXPECT_NEAR(freedom("s1/m0/output/t7/0"), 5.0, 0.5);  // the passes
}

// The example of docs/verdict.md, step by step as written there.
TEST(VerdictPage, TheWorkedExampleIsWhatTheProgramComputes) {
  const std::string id = "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0";
  std::vector<NoisePass> noise;
  for (const double squared : {0.000355849, 0.000365820, 0.000362866, 0.000356463, 0.000360824}) {
    noise.push_back({static_cast<int>(noise.size()) + 1, {{parse_tensor_id(id), squared, 0, 0}}});
  }
  ReferenceTensors reference;
  reference.add(id, {64, 4, 128});
  const NoiseModel model(noise, reference.matches());
  const double largest = 0.05;  // between 2^-5 and 2^-4
  const std::vector<double> values{largest, 0.0};
  const Statistics statistics =
      compare(ElementType::kF64, values.data(), ElementType::kF64, values.data(), 2);
  const Bound bound = Bounds(model, ElementType::kBF16, true)
                          .of({parse_tensor_id(id), 3, ElementType::kBF16, statistics});
  EXPECT_NEAR(unit_in_last_place(ElementType::kBF16, largest), 0.000244141, 1e-9);
  EXPECT_NEAR(bound.scale.value(), 0.0189895, 1e-7);
  // The run had 490 tensors that noise moved, and activations like this one in plenty.
  const RatioLimit limit = ratio_limit(1.25, 790.0, 5 * 790.0, kFalseAlarmsPerRun / (3 * 490));
  EXPECT_NEAR(limit.by_chance, 6.8e-7, 1e-8);
  EXPECT_NEAR(limit.value, 1.25 * 1.138, 2e-3);
  EXPECT_NEAR(limit.value * bound.scale.value(), 0.0270, 5e-5);
  EXPECT_NEAR(0.723134 / bound.scale.value(), 38.1, 0.05);
}

}  // namespace
}  // namespace ttrace
