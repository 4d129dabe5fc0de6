// Choices of experts: legal flips, illegal ones, and what comes after a flip.
#include "analysis/align/compatibility.h"
#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/merge/draws.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::noise_row;
using testing::part;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

constexpr auto kRouter = "decoder.layers.0.mlp.router";
constexpr auto kChoices = "s0/m0/routing/decoder.layers.0.mlp.router/0";
constexpr auto kMargins = "s0/m0/routing/decoder.layers.0.mlp.router/1";
constexpr auto kBefore = "s0/m0/output/decoder.layers.0.pre_mlp_layernorm/0";
constexpr auto kAfter = "s0/m0/output/decoder.layers.0/0";
constexpr auto kOther = "s0/m1/output/decoder.layers.0/0";
constexpr auto kLater = "s0/main_grad/decoder.layers.0.mlp.router.weight/0";

// Four tokens, two of several experts each; margins of noise passes move by up to 0.01.
class RoutingCheck : public ::testing::Test {
 protected:
  static Tensor choices(const std::vector<double>& experts) {
    return {kChoices, experts, ElementType::kI64, {4, 2}};
  }
  static Tensor margins(const std::vector<double>& values) {
    return {kMargins, values, ElementType::kF32, {4}};
  }
  static std::vector<double> moved(std::vector<double> values, double by) {
    values.front() += by;
    return values;
  }

  // The tensors of every side. The candidate's have an error of `error` before, after and
  // elsewhere.
  void build(TraceBuilder& side, const Tensor& chosen, const Tensor& margin, double error) {
    side.add(0, {kBefore, wavy(8)})
        .add(0, chosen)
        .add(0, margin)
        .add(0, {kAfter, moved(wavy(8), error)})
        .add(0, {kOther, wavy(8)})
        .add(0, {kLater, moved(wavy(8), error)});
  }
  Report run() {
    const Trace reference = reference_.write();
    testing::write_noise_passes(directory_ / "reference",
                                {noise_row(kBefore, 0.01, 0.01),
                                 noise_row(kMargins, 0.01, 0.01),
                                 noise_row(kAfter, 0.01, 0.01),
                                 noise_row(kOther, 0.01, 0.01),
                                 noise_row(kLater, 0.01, 0.01)});
    return diff(reference, written_ ? Trace::open(directory_ / "candidate") : candidate_.write());
  }
  static const TensorVerdict& verdict(const Report& report, const std::string& id) {
    for (const TensorVerdict& tensor : report.tensors) {
      if (to_string(tensor.id) == id) {
        return tensor;
      }
    }
    throw std::runtime_error("not in the report: " + id);
  }
  static std::string text(const Report& report) {
    std::ostringstream out;
    write_text(out, report, {});
    return out.str();
  }
  static std::string json(const Report& report) {
    std::ostringstream out;
    write_json(out, report);
    return out.str();
  }

  const std::vector<double> experts_{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<double> margins_{0.5, 0.004, 0.5, 0.5};
  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate"};
  bool written_ = false;  // the candidate's trace
};

TEST_F(RoutingCheck, OrderAmongTheChosenDoesNotCount) {
  build(reference_, choices(experts_), margins(margins_), 0.0);
  build(candidate_, choices({1, 0, 2, 3, 5, 4, 6, 7}), margins(margins_), 0.0);
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.flips()->tokens, 4);
  EXPECT_EQ(report.flips()->flips, 0);
}

// Symptom: a clean run of torchtitan's DeepSeek-V3 alarmed under tp 4. One token of 256 chose the
// same three experts in another order, and so the gradients of its scores stood in that order.
class OrderOfChoices : public RoutingCheck {
 protected:
  static constexpr auto kScores = "s0/m0/output/decoder.layers.0.mlp.router/0";
  static constexpr auto kOfScores = "s0/m0/grad_output/decoder.layers.0.mlp.router/0";

  static constexpr auto kOfWeights = "s0/m0/grad_input/decoder.layers.0.mlp.experts/1";

  static void add_values(TraceBuilder& side, const std::vector<double>& numbers) {
    for (const char* id : {kScores, kOfWeights, kOfScores}) {
      side.add(0, {id, numbers, ElementType::kF32, {4, 2}});
    }
  }
  // Two values per token, whose experts are 0 1, 2 3, 4 5 and 6 7 in the reference.
  Report with_values(const std::vector<double>& reference,
                     const std::vector<double>& candidate,
                     const std::vector<double>& candidate_experts) {
    reference_.add(0, choices(experts_)).add(0, margins(margins_));
    add_values(reference_, reference);
    candidate_.add(0, choices(candidate_experts)).add(0, margins(margins_));
    add_values(candidate_, candidate);
    return diff(reference_.write(), candidate_.write());
  }

  const std::vector<double> values_{0.5, -1.0, 2.0, 3.0, -4.0, 5.0, 6.0, -7.0};
  const std::vector<double> swapped_{-1.0, 0.5, 2.0, 3.0, -4.0, 5.0, 6.0, -7.0};
  const std::vector<double> swapped_experts_{1, 0, 2, 3, 4, 5, 6, 7};
};

TEST_F(OrderOfChoices, ScoresAndTheirGradientsAreComparedExpertByExpert) {
  const Report report = with_values(values_, swapped_, swapped_experts_);
  EXPECT_FALSE(report.diverged());
  for (const char* id : {kScores, kOfWeights, kOfScores}) {
    EXPECT_EQ(verdict(report, id).comparison->reordered, 1) << id;
    EXPECT_EQ(verdict(report, id).comparison->error, 0.0) << id;
  }
}

TEST_F(OrderOfChoices, ValuesThatDidNotChangePlacesWithTheExpertsAreAFinding) {
  std::vector<double> wrong = swapped_;
  std::swap(wrong[2], wrong[3]);
  const Report report = with_values(values_, wrong, swapped_experts_);
  ASSERT_TRUE(report.diverged());
  EXPECT_NEAR(verdict(report, kOfScores).comparison->error, std::sqrt(2.0), 1e-6);
}

TEST_F(OrderOfChoices, ATensorOfThatShapeInAnotherOrderStaysAsItIs) {
  const Report report = with_values(values_, values_, swapped_experts_);
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(verdict(report, kOfScores).comparison->reordered, 0);
}

TEST_F(OrderOfChoices, ATokenThatGoesToOtherExpertsStaysAsItIs) {
  const Report report = with_values(values_, swapped_, {1, 9, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(verdict(report, kOfScores).comparison->reordered, 0);
}

// 0.004 + 0.003 is less than 2 x 3.2 x (0.01 / sqrt 4 tokens) = 0.032.
TEST_F(RoutingCheck, AFlipWhereScoresNearlyTieIsLegal) {
  build(reference_, choices(experts_), margins(margins_), 0.0);
  build(candidate_, choices({0, 1, 2, 7, 4, 5, 6, 7}), margins({0.5, 0.003, 0.5, 0.5}), 0.0);
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_FALSE(report.undecided());
  const TensorVerdict& tensor = verdict(report, kChoices);
  EXPECT_EQ(tensor.status(), Status::kWithin);
  EXPECT_EQ(tensor.find(Question::kRouting)->term(Term::kFlips), 1.0);
  EXPECT_EQ(tensor.find(Question::kRouting)->term(Term::kIllegal), 0.0);
  EXPECT_NEAR(tensor.find(Question::kRouting)->value, 0.007, 1e-6);
  EXPECT_NEAR(tensor.find(Question::kRouting)->bound, 0.032, 1e-6);
  EXPECT_THAT(text(report), HasSubstr("\n  experts    1 of 4 tokens goes to other experts"));
}

TEST_F(RoutingCheck, AFlipAgainstAClearMarginOfEitherSideIsAFinding) {
  build(reference_, choices(experts_), margins(margins_), 0.0);
  build(candidate_, choices({0, 1, 2, 7, 4, 5, 6, 7}), margins({0.5, 0.3, 0.5, 0.5}), 0.0);
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), kChoices);
  EXPECT_EQ(tensor.symptom(), Symptom::kIllegalFlip);
  EXPECT_EQ(tensor.tier(), Tier::kT2);
  EXPECT_EQ(tensor.find(Question::kRouting)->term(Term::kIllegal), 1.0);
  EXPECT_THAT(tensor.cause(), HasSubstr("scores moved by up to 0.304, but it explains 0.032"));
  EXPECT_THAT(tensor.cause(), HasSubstr("token [1] goes to experts [2, 7] instead of [2, 3]"));
  EXPECT_THAT(report.where_to_look, HasSubstr(kRouter));
}

TEST_F(RoutingCheck, WithoutMarginsNoFlipIsLegal) {
  reference_.add(0, choices(experts_));
  candidate_.add(0, choices({0, 1, 2, 7, 4, 5, 6, 7}));
  const Report report = diff(reference_.write(), candidate_.write());
  ASSERT_TRUE(report.diverged());
  EXPECT_THAT(report.tensors[0].cause(), HasSubstr("the reference recorded no margins"));
}

TEST_F(RoutingCheck, WithoutNoiseTheBoundIsAClassDefault) {
  reference_.add(0, choices(experts_)).add(0, margins(margins_));
  candidate_.add(0, choices({0, 1, 2, 7, 4, 5, 6, 7})).add(0, margins({0.5, 0.003, 0.5, 0.5}));
  const Report report = diff(reference_.write(), candidate_.write());
  const TensorVerdict& tensor = verdict(report, kChoices);
  EXPECT_EQ(tensor.origin(), BoundOrigin::kClassDefault);
  EXPECT_EQ(tensor.symptom(), Symptom::kIllegalFlip) << "0.007 is more than f32 rounding explains";
}

TEST_F(RoutingCheck, WhatComesAfterALegalFlipIsNotJudgedSharply) {
  build(reference_, choices(experts_), margins(margins_), 0.0);
  build(candidate_, choices({0, 1, 2, 7, 4, 5, 6, 7}), margins({0.5, 0.003, 0.5, 0.5}), 0.5);
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_TRUE(report.undecided());
  EXPECT_EQ(report.counts().behind_flip, 2U);
  EXPECT_EQ(verdict(report, kAfter).status(), Status::kBehindFlip);
  EXPECT_EQ(verdict(report, kLater).status(), Status::kBehindFlip);
  EXPECT_THAT(verdict(report, kAfter).cause(),
              HasSubstr("tokens go to other experts from " + std::string(kChoices) + " on"));
  EXPECT_THAT(text(report), HasSubstr("UNDECIDED"));
  EXPECT_THAT(json(report), HasSubstr("\"verdict\":\"undecided\""));
}

TEST_F(RoutingCheck, OtherMicrobatchesAndWhatComesBeforeAreJudgedAllTheSame) {
  build(reference_, choices(experts_), margins(margins_), 0.0);
  candidate_.add(0, {kBefore, wavy(8)})
      .add(0, choices({0, 1, 2, 7, 4, 5, 6, 7}))
      .add(0, margins({0.5, 0.003, 0.5, 0.5}))
      .add(0, {kAfter, wavy(8)})
      .add(0, {kOther, moved(wavy(8), 0.5)})
      .add(0, {kLater, wavy(8)});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kOther);
}

TEST_F(RoutingCheck, ReferenceThatFollowedTheCandidateJudgesAllSharply) {
  build(candidate_, choices({0, 1, 2, 7, 4, 5, 6, 7}), margins({0.5, 0.003, 0.5, 0.5}), 0.5);
  reference_.manifest.forced_routing = digest_of_choices(candidate_.write());
  written_ = true;
  build(reference_, choices(experts_), margins(margins_), 0.0);
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kAfter);
  EXPECT_EQ(verdict(report, kChoices).status(), Status::kWithin);
  EXPECT_THAT(text(report), HasSubstr("used the candidate's choices"));
}

TEST_F(RoutingCheck, ReferenceThatFollowedAnotherCandidateIsRefused) {
  build(candidate_, choices(experts_), margins(margins_), 0.0);
  build(reference_, choices(experts_), margins(margins_), 0.0);
  reference_.manifest.forced_routing = "0123456789abcdef";
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  try {
    require_followed(reference, candidate);
    FAIL() << "compared with what followed somebody else";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("of another candidate than"));
  }
}

TEST_F(RoutingCheck, ChoicesOfSeveralRanksAreOneTensor) {
  Placement first = whole(std::vector<std::int64_t>{2, 2});
  Placement second = first;
  first.dims[0] = part(4, 0, 2).dims[0];
  second.dims[0] = part(4, 1, 2).dims[0];
  TraceBuilder ranks(directory_ / "ranks", "candidate", 2, "cp");
  ranks.add(0, {kChoices, {0, 1, 2, 3}, ElementType::kI64, {2, 2}, first})
      .add(1, {kChoices, {4, 5, 6, 7}, ElementType::kI64, {2, 2}, second});
  candidate_.add(0, choices(experts_));
  const Trace whole = candidate_.write();
  const Trace parts = ranks.write();
  EXPECT_THAT(read_routing(parts).at(parse_tensor_id(kChoices)).experts,
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(digest_of_choices(parts), digest_of_choices(whole));
}

}  // namespace
}  // namespace ttrace
