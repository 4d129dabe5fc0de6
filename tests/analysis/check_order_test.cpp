// The order in which checks are made and excuses are asked for must not show in a report.
#include "analysis/diff.h"
#include "analysis/rename/rename.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/dyadic_inputs.h"

#include <ttrace/collective_call.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using testing::noise_row;
using testing::off;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

constexpr auto kKind = ElementType::kF32;
using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

std::string bytes_of(const Report& report) {
  std::ostringstream out;
  write_text(out, report, {});
  write_json(out, report);
  write_junit(out, report);
  return out.str();
}

std::set<std::string> failed_questions(const Report& report) {
  std::set<std::string> names;
  for (const TensorVerdict& tensor : report.tensors) {
    for (const Check& check : tensor.checks) {
      if (!check.holds) {
        names.emplace(name_of(check.question));
      }
    }
  }
  return names;
}

std::set<std::string> excuses_of(const Report& report) {
  std::set<std::string> names;
  for (const TensorVerdict& tensor : report.tensors) {
    for (const Excused& excused : tensor.excuses) {
      names.emplace(name_of(excused.excuse));
    }
  }
  return names;
}

// The report, which has the same bytes in twenty orders.
Report in_any_order(const Trace& reference, const Trace& candidate, DiffOptions options) {
  options.threads = 1;
  Report report = diff(reference, candidate, options);
  const std::string expected = bytes_of(report);
  for (options.shuffle = 1; options.shuffle <= 20; ++options.shuffle) {
    EXPECT_EQ(bytes_of(diff(reference, candidate, options)), expected)
        << "order " << options.shuffle;
  }
  return report;
}

// A run of two ranks in which nearly every question fails somewhere, with nearly every excuse.
class CheckOrder : public ::testing::Test {
 protected:
  // What a side records of a tensor. Operators that are right make `expected` of the candidate's
  // inputs.
  struct Sides {
    Numbers right;
    Numbers first;   // rank 0 of the candidate
    Numbers second;  // rank 1
    Numbers expected;
  };
  static Sides wrong(const Numbers& found) {
    return {wavy(256, 0.3), found, found, wavy(256, 0.3)};
  }
  // Far from the reference, but what right operators make of the candidate's inputs.
  static Sides passed_on(double error) {
    const Numbers found = off(wavy(256, 0.3), error, 1.0);
    return {wavy(256, 0.3), found, found, found};
  }
  static Sides equal(const Numbers& values) { return {values, values, values, values}; }

  void add(const std::string& id,
           const Sides& sides,
           const Shape& shape = {16, 16},
           ElementType type = kKind) {
    reference_.add(0, {id, sides.right, type, shape, {}});
    golden_.add(0, {id, off(sides.right, 1e-3, 5.0), type, shape, {}});
    wide_.add(0, {id, sides.expected, type, shape, {}});
    native_.add(0, {id, off(sides.expected, 1e-3, 2.0), type, shape, {}});
    candidate_.add(0, {id, sides.first, type, shape, {}});
    candidate_.add(1, {id, sides.second, type, shape, {}});
    noise_.push_back(noise_row(id, 0.01, 0.002));
  }
  // The reference alone has it.
  void lose(const std::string& id) { reference_.add(0, {id, values_, kKind, {16, 16}, {}}); }

  void add_outputs() {
    Numbers row = values_;
    Numbers with_nan = values_;
    for (std::size_t i = 32; i < 48; ++i) {
      row[i] *= 1.5;
    }
    with_nan[7] = std::nan("");
    add("s0/m0/output/a/0", {values_, scaled(values_, 1.5), scaled(values_, 1.7), values_});
    add("s0/m0/output/b/0", wrong(row));
    add("s0/m0/output/c/0", wrong(scaled(values_, 1.004)));
    add("s0/m0/output/d/0", wrong(with_nan));
    add("s0/m0/output/inherits/0", passed_on(0.05));
    add("s0/m0/output/permitted/0", wrong(scaled(values_, 3.0)));
    add("s0/m0/output/tolerated/0", wrong(off(values_, 0.3, 1.0)));
    candidate_.add_everywhere({"s0/m0/output/b/0~", scaled(row, 1.1), kKind, {16, 16}, {}});
    candidate_.add_everywhere({"s0/m0/output/extra/0", values_, kKind, {16, 16}, {}});
    reference_.add(0, {"s0/m0/output/other_type/0", values_});
    candidate_.add_everywhere({"s0/m0/output/other_type/0", values_, ElementType::kBF16});
    reference_.add(0, {"s0/m0/output/other_shape/0", values_});
    candidate_.add_everywhere({"s0/m0/output/other_shape/0", wavy(255)});
    lose("s0/m0/output/gone/0");
    lose("s0/m0/output/may_be_gone/0");
    lose("s0/m0/output/untraced/0");
  }
  // An input that is no copy of what it comes from, and one that comes from elsewhere.
  void add_edges() {
    reference_.edge(0, "s0/m0/input/copies/0", "s0/m0/output/c/0");
    reference_.edge(0, "s0/m0/input/elsewhere/0", "s0/m0/output/c/0");
    candidate_.add_everywhere({"s0/m0/input/copies/0", values_, kKind, {16, 16}, {}});
    candidate_.edge(0, "s0/m0/input/elsewhere/0", "s0/m0/output/b/0");
  }
  void add_communication() {
    candidate_.add(0, {"s0/m0/sent/stage/0", wavy(4)});
    candidate_.add(1, {"s0/m0/received/stage/0", wavy(4, 0.1)});
    for (const int rank : {0, 1}) {
      const std::string text =
          to_text(CollectiveCall{.rank = rank, .size = 2, .module = "decoder"});
      candidate_.add(rank, {"s0/collective_input/tp-0.3/0", {1.0, 2.0}});
      candidate_.add(
          rank,
          {"s0/collective_input/tp-0.3/1", Numbers(text.begin(), text.end()), ElementType::kU8});
      candidate_.add(rank, {"s0/collective_output/tp-0.3/0", {2.0, 5.0}});
    }
  }
  // Codes of `format`, whose largest is that of the format.
  static Numbers quantised(ElementType format, double scale) {
    const double largest = format == ElementType::kE4M3 ? 448.0 : 57344.0;
    Numbers codes = wavy(64 * 128, 0.3);
    codes[77] = 3.5;
    for (double& code : codes) {
      code = std::clamp(code / scale, -largest, largest);
    }
    std::vector<std::uint8_t> bytes(codes.size());
    from_double(format, codes.data(), std::ssize(codes), bytes.data());
    to_double(format, bytes.data(), std::ssize(codes), codes.data());
    return scaled(codes, scale);
  }
  // An operand whose scale is twice the reference's, and one in another format.
  void add_codes() {
    const auto operand = [&](const std::string& path, ElementType format, double scale) {
      const double right = 3.5 / 448.0;
      const Numbers values = quantised(ElementType::kE4M3, right);
      const Numbers found = quantised(format, scale);
      add("s0/m0/scale/" + path + "/0", {{right}, {scale}, {scale}, {right}}, {});
      noise_.back() = noise_row("s0/m0/scale/" + path + "/0", 0.0, 0.0);
      add("s0/m0/operand/" + path + "/0",
          {values, found, found, values},
          {64, 128},
          ElementType::kBF16);
      noise_.back() = noise_row("s0/m0/operand/" + path + "/0", 3.0, 0.5);
    };
    operand("twice", ElementType::kE4M3, 2.0 * 3.5 / 448.0);
    operand("other_format", ElementType::kE5M2, 3.5 / 57344.0);
  }
  // A token of micro-batch 1 that goes elsewhere, and a tensor behind it.
  void add_routing() {
    const std::string router = "s0/m1/routing/router/";
    reference_.add(0, {router + "0", {0, 1, 2, 3, 4, 5, 6, 7}, ElementType::kI64, {4, 2}});
    reference_.add(0, {router + "1", {0.5, 0.5, 0.5, 0.5}});
    candidate_.add_everywhere({router + "0", {0, 1, 2, 7, 4, 5, 6, 7}, ElementType::kI64, {4, 2}});
    candidate_.add_everywhere({router + "1", {0.5, 0.5, 0.5, 0.5}});
    noise_.push_back(noise_row(router + "1", 0.01, 0.01));
    add("s0/m1/output/after/0", passed_on(0.3));
  }
  // A mean and a norm that are not those of what they are made from.
  void add_scalars() {
    const Numbers losses = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
    add("s0/m0/loss/loss/0", equal(losses), {3, 2});
    add("s0/scalar/loss/0", {{3.5}, {3.51}, {3.51}, {3.5}}, {});
    add("s0/main_grad/fc.weight/0", equal(values_));
    double squares = 0.0;
    for (const double value : values_) {
      squares += value * value;
    }
    const Numbers norm = {std::sqrt(squares)};
    const Numbers other = scaled(norm, 1.01);
    add("s0/scalar/grad_norm/0", {norm, other, other, norm}, {});
    noise_.back() = noise_row("s0/scalar/grad_norm/0", 0.1, 0.1);
    add("s0/param_next/fc.weight/0", wrong(off(values_, 0.05, 1.0)));
  }

  void SetUp() override {
    reference_.add(0, {"s0/m0/data/tokens/0", {1, 2, 3, 4}, ElementType::kI64});
    candidate_.add_everywhere({"s0/m0/data/tokens/0", {1, 2, 3, 5}, ElementType::kI64});
    add_outputs();
    add_edges();
    add_communication();
    add_codes();
    add_routing();
    add_scalars();
    // The rename map lets the reference lack what the candidate calls extra.
    reference_.manifest.names = "candidate";
    candidate_.manifest.untraced = {"/untraced/"};
  }

  const Numbers values_ = wavy(256, 0.3);
  TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
  TraceBuilder golden_{folder_ / "golden", "golden"};
  TraceBuilder wide_{folder_ / "wide", "forced"};
  TraceBuilder native_{folder_ / "native", "forced"};
  std::vector<NoiseRow> noise_;
};

TEST_F(CheckOrder, ReportsHaveTheSameBytesInWhateverOrderIsAsked) {
  const Trace reference = reference_.write();
  RenameMap::parse("tensors: [{reference: ~, candidate: extra}]", "made up")
      .save(folder_ / "reference/" + kRenameFile);
  testing::write_noise_passes(folder_ / "reference", noise_);
  const Trace golden = golden_.write();
  const ForcedTraces forced{wide_.write(), native_.write()};
  DiffOptions options;
  options.forced = &forced;
  options.golden = &golden;
  options.tolerance.add_rtol(".*/tolerated/0:0.01");
  options.allow_missing = {{"--allow-missing", "may_be_gone"}, {"--allow-missing", "untraced"}};
  options.allow_failed = {{"--allow-failed", "permitted"}, {"--allow-failed", "inherits"}};
  const Report report = in_any_order(reference, candidate_.write(), options);
  ASSERT_TRUE(report.diverged());
  EXPECT_THAT(failed_questions(report),
              IsSupersetOf({"presence",
                            "structure",
                            "type",
                            "format",
                            "recompute",
                            "shape",
                            "message",
                            "collective",
                            "source",
                            "finite",
                            "norm",
                            "mean",
                            "exact",
                            "operator",
                            "operator_slice",
                            "flips",
                            "tolerance",
                            "whole"}));
  EXPECT_THAT(excuses_of(report),
              IsSupersetOf({"copied_input",
                            "harmless_scale",
                            "behind_flip",
                            "inherited",
                            "allowed",
                            "untraced",
                            "declared"}));
  const auto verdict = [&](const std::string& id) {
    return *std::ranges::find(report.tensors, parse_tensor_id(id), &TensorVerdict::id);
  };
  EXPECT_EQ(verdict("s0/m0/output/inherits/0").status(), Status::kInherited);
  EXPECT_FALSE(verdict("s0/m0/output/inherits/0").allowed()) << "what is inherited needs no permit";
  EXPECT_EQ(verdict("s0/m1/output/after/0").status(), Status::kBehindFlip);
  EXPECT_EQ(verdict("s0/m0/output/permitted/0").status(), Status::kDiverged);
  EXPECT_TRUE(verdict("s0/m0/output/permitted/0").allowed());
  EXPECT_TRUE(verdict("s0/m0/output/untraced/0").allowed());
  EXPECT_TRUE(verdict("s0/m0/output/extra/0").allowed());
  EXPECT_THAT(
      report.warnings,
      ::testing::UnorderedElementsAre("--allow-missing 'untraced' matches no missing tensor",
                                      "--allow-failed 'inherits' matches no tensor out of bound"));
}

TEST(CheckOrderOfDyadicInputs, ReportsHaveTheSameBytesInWhateverOrderIsAsked) {
  const TemporaryDirectory folder;
  TraceBuilder reference(folder / "reference", "reference");
  TraceBuilder candidate(folder / "candidate", "candidate", 2);
  TraceBuilder golden(folder / "golden", "golden");
  const Numbers values = wavy(64);
  const auto add = [&](const std::string& id, const Numbers& truth, const Numbers& first) {
    reference.add(0, {id, values});
    golden.add(0, {id, truth, ElementType::kF64});
    candidate.add(0, {id, first}).add(1, {id, scaled(first, 1.5)});
  };
  add("s0/m0/output/sums/0", values, scaled(values, 2.0));
  add("s0/m0/output/rounds/0", off(values, 1e-6, 1.0), values);
  reference.add(0, {"s0/m0/output/rounds_alone/0", values});
  golden.add(0, {"s0/m0/output/rounds_alone/0", off(values, 1e-6, 1.0), ElementType::kF64});
  candidate.add_everywhere({"s0/m0/output/rounds_alone/0", off(values, 0.5, 2.0)});
  reference.edge(0, "s0/m0/input/copies/0", "s0/m0/output/sums/0");
  candidate.add_everywhere({"s0/m0/input/copies/0", values});
  for (TraceBuilder* const trace : {&reference, &candidate, &golden}) {
    trace->manifest.data[kInputsKey] = kDyadicInputs;
  }
  const Trace truth = golden.write();
  DiffOptions options;
  options.golden = &truth;
  options.allow_failed = {{"--allow-failed", "sums"}, {"--allow-failed", "copies"}};
  const Report report = in_any_order(reference.write(), candidate.write(), options);
  EXPECT_THAT(failed_questions(report), IsSupersetOf({"presence", "structure", "dyadic"}));
  EXPECT_THAT(excuses_of(report), IsSupersetOf({"reference_rounds", "replaced_input", "allowed"}));
}

TEST(CheckOrderOfInterruptedSteps, ReportsHaveTheSameBytesInWhateverOrderIsAsked) {
  const TemporaryDirectory folder;
  TraceBuilder reference(folder / "reference", "reference");
  TraceBuilder candidate(folder / "candidate", "candidate", 2);
  for (const std::string id : {"s0/m0/output/a/0", "s0/m0/output/b/0"}) {
    reference.add(0, {id, wavy(8)});
    candidate.add(0, {id, wavy(4), kKind, {4}, testing::part(8, 0, 2)});
    candidate.add(1, {id, wavy(4), kKind, {4}, testing::part(8, 1, 2)});
  }
  candidate.add(0, {"s0/m0/sent/stage/0", wavy(4)});
  static_cast<void>(candidate.write());
  std::filesystem::remove(step_file(folder / "candidate", 0, 1));
  const Report report =
      in_any_order(reference.write(), Trace::open_partial(folder / "candidate"), {});
  EXPECT_TRUE(report.partial());
  EXPECT_THAT(excuses_of(report), IsSupersetOf({"interrupted"}));
}

// The sentences of those that a report has.
std::vector<std::string> speakers(const std::vector<Check>& checks) {
  std::vector<std::string> sentences;
  for (const Check& check : checks) {
    if (speaks(checks, check)) {
      sentences.push_back(check.sentence);
    }
  }
  return sentences;
}

TEST(SpeakingChecks, OnlyTheFirstOfWholePartAndFactorSpeaks) {
  std::vector<Check> checks;
  insert_check(checks, failed(Question::kFactor, "factor"));
  insert_check(checks, failed(Question::kPart, "part"));
  insert_check(checks, failed(Question::kOperatorPart, "operators"));
  EXPECT_THAT(speakers(checks), ElementsAre("operators", "part"));
}

TEST(SpeakingChecks, ThatATensorIsTooCoarseGoesWithoutSayingWhereAnotherCheckFails) {
  std::vector<Check> checks = {failed(Question::kTooCoarse, "coarse")};
  EXPECT_THAT(speakers(checks), ElementsAre("coarse"));
  insert_check(checks, failed(Question::kWhole, "far"));
  EXPECT_THAT(speakers(checks), ElementsAre("far"));
}

Check copies_differ() {
  Check check = failed(Question::kStructure, "copies differ", {0, 1});
  check.narrower = Symptom::kReplicasDisagree;
  return check;
}

// The tier came from the copies, and the symptom, the ranks and the first words from the operators.
TEST(VerdictOfChecks, OneCheckDecidesTierSymptomRanksAndWhatIsSaidFirst) {
  TensorVerdict verdict;
  verdict.holders = {0, 1, 2};
  verdict.add(failed(Question::kOperator, "operators are wrong", {2}));
  verdict.add(copies_differ());
  ASSERT_NE(verdict.deciding(), nullptr);
  EXPECT_EQ(verdict.deciding()->question, Question::kStructure);
  EXPECT_EQ(verdict.tier(), Tier::kT0);
  EXPECT_EQ(verdict.symptom(), Symptom::kReplicasDisagree);
  EXPECT_EQ(verdict.ranks(), (std::vector<int>{0, 1}));
  EXPECT_EQ(verdict.cause(), "copies differ; also: operators are wrong");
  EXPECT_EQ(verdict.status(), Status::kDiverged);
}

// Every failed check alone, and with any other one: tier, symptom and words come from one check.
TEST(VerdictOfChecks, TierSymptomAndCauseAgreeForEveryPairOfFailedChecks) {
  const auto last = static_cast<int>(Question::kTooCoarse);
  for (int i = 0; i <= last; ++i) {
    for (int j = 0; j <= last; ++j) {
      const auto left = static_cast<Question>(i);
      const auto right = static_cast<Question>(j);
      TensorVerdict verdict;
      verdict.add(failed(left, std::string(name_of(left))));
      verdict.add(failed(right, std::string(name_of(right))));
      const Check first = failed(std::min(left, right), "");
      const std::string both = std::string(name_of(left)) + " and " + std::string(name_of(right));
      EXPECT_EQ(verdict.tier(), first.tier()) << both;
      EXPECT_EQ(verdict.symptom(), first.symptom()) << both;
      EXPECT_EQ(verdict.cause().find(name_of(first.question)), 0U) << both;
      EXPECT_NE(verdict.symptom(), Symptom::kNone) << both;
    }
  }
}

constexpr auto kAllExcuses = std::to_array<Excuse>({Excuse::kInterrupted,
                                                    Excuse::kRounds,
                                                    Excuse::kCopied,
                                                    Excuse::kReplaced,
                                                    Excuse::kOneSided,
                                                    Excuse::kHarmlessScale,
                                                    Excuse::kBehindFlip,
                                                    Excuse::kInherited,
                                                    Excuse::kAllowed,
                                                    Excuse::kUntraced,
                                                    Excuse::kDeclared});

// Every pair of excuses gives one status, whichever was added first.
TEST(VerdictOfChecks, StatusFollowsFromTheSetOfExcuses) {
  const auto verdict = [](Excuse first, Excuse second, bool fails) {
    TensorVerdict made;
    if (fails) {
      made.add(failed(Question::kWhole, "far"));
    }
    made.excuse(first);
    made.excuse(second);
    return made;
  };
  for (const Excuse left : kAllExcuses) {
    for (const Excuse right : kAllExcuses) {
      for (const bool fails : {true, false}) {
        const TensorVerdict one = verdict(left, right, fails);
        const TensorVerdict other = verdict(right, left, fails);
        const std::string both = std::string(name_of(left)) + " and " + std::string(name_of(right));
        EXPECT_EQ(one.status(), other.status()) << both;
        EXPECT_EQ(one.symptom(), other.symptom()) << both;
        EXPECT_EQ(one.allowed(), other.allowed()) << both;
        EXPECT_EQ(one.is_finding(), other.is_finding()) << both;
        EXPECT_EQ(one.cause(), other.cause()) << both;
      }
    }
  }
}

TEST(VerdictOfChecks, ExcusesStandNextToWhatTheyExcuse) {
  TensorVerdict verdict;
  verdict.add(failed(Question::kWhole, "far"));
  verdict.excuse(Excuse::kAllowed);
  EXPECT_EQ(verdict.status(), Status::kDiverged);
  EXPECT_TRUE(verdict.is_wrong());
  EXPECT_FALSE(verdict.is_finding());
  verdict.excuse(Excuse::kInherited);
  EXPECT_EQ(verdict.status(), Status::kInherited);
  EXPECT_FALSE(verdict.is_wrong());
  EXPECT_FALSE(verdict.allowed()) << "there is nothing left to permit";
}

}  // namespace
}  // namespace ttrace
