// Random numbers: what is recorded of them, and who follows whose.
#include "trace/merge/draws.h"

#include "hooks/training.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/dropout.h>

namespace ttrace {
namespace {

using testing::candidate_pass;
using testing::Captured;
using ::testing::ElementsAre;
using testing::Holder;
using testing::noise_pass;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::step0;
using testing::TemporaryDirectory;
using testing::Variables;
using testing::with;

// A module that drops elements of what it is given, and adds noise to the rest.
class DrawsTest : public ::testing::Test {
 protected:
  at::Tensor run_model(const at::Tensor& x, bool trains) {
    Scope scope(root_, "drop");
    at::Tensor y = at::dropout(scope.in(x), 0.5, trains);
    y = trains ? y + at::randn({4}) : y;
    return scope.out(y);
  }

  // One traced micro-batch of the rows [first, first + count) of six; `seed` is the generator's.
  at::Tensor run(const Variables& variables,
                 std::uint64_t seed,
                 const Layout& layout = {},
                 bool trains = true) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    auto session = Session::from_environment();
    session.attach(
        root_,
        layout,
        Annotations::parse("tensors:\n"
                           "  - {path: drop, inputs: \"b[dp] h\", value: \"b[dp] h\"}\n"));
    at::manual_seed(seed);
    at::Tensor result;
    auto step = session.step(0);
    {
      auto microbatch = step.microbatch(0);
      order_ = at::tensor(microbatch.permutation(6), at::kLong);
      const std::int64_t count = 6 / layout.world_size;
      const at::Tensor x = random_tensor({6, 4}).abs().add(1).index_select(0, order_);
      result = run_model(x.narrow(0, layout.rank * count, count), trains);
      next_ = at::rand({1});
    }
    step.scalar("done", 1.0);  // where an error is thrown
    return result;
  }

  // Two ranks with generators of their own.
  std::vector<at::Tensor> run_candidate() {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < 2; ++rank) {
      Layout layout{.rank = rank, .world_size = 2, .axes = {}};
      layout.add("dp", 2, rank);
      parts.push_back(run(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"),
                          static_cast<std::uint64_t>(100 + rank),
                          layout));
    }
    return parts;
  }

  Holder root_;
  torch::nn::Linear fc_ = root_.add("fc", torch::nn::Linear(2, 2));
  at::Tensor order_;
  at::Tensor next_;  // what the generator gives after the model
  TemporaryDirectory reference_;
  TemporaryDirectory candidate_;
  TemporaryDirectory following_;
};

// Symptom: a program with dropout diverged under DDP, because nothing said what it had drawn.
TEST_F(DrawsTest, EveryDrawOfAModuleIsRecordedAndAMaskInOneByte) {
  const at::Tensor result = run(reference_pass(reference_.path()), 1);
  const Captured captured(step0(reference_));
  EXPECT_THAT(captured.ids_with("/m0/draw/"),
              ElementsAre("s0/m0/draw/drop/0", "s0/m0/draw/drop/1"));
  EXPECT_EQ(captured.record("s0/m0/draw/drop/0").type, ElementType::kBool);
  EXPECT_EQ(captured.record("s0/m0/draw/drop/1").type, ElementType::kF32);
  const at::Tensor mask = captured.tensor("s0/m0/draw/drop/0");
  const at::Tensor noise = captured.tensor("s0/m0/draw/drop/1");
  const at::Tensor x = random_tensor({6, 4}).abs().add(1);
  EXPECT_SAME(result, x * (mask.to(at::kFloat) / 0.5) + noise);
}

TEST_F(DrawsTest, WhatAStepDrawsOutsideOfModulesIsOfNoMicrobatchAndTheRanksRowsLieInOrder) {
  run_candidate();
  const Captured last(candidate_ / "step000000/rank00001.h5");
  EXPECT_THAT(last.ids_with("s0/draw/"),
              ElementsAre("s0/draw/step.normal_/0", "s0/draw/step.uniform_/0"));
  EXPECT_EQ(to_string(last.record("s0/draw/step.normal_/0").placement), "12/6:0+6+6 4");
}

TEST_F(DrawsTest, WhatDrawsNothingIsNotRecorded) {
  run(reference_pass(reference_.path()), 1, {}, false);
  EXPECT_THAT(Captured(step0(reference_)).ids_with("/draw/drop"), ElementsAre());
}

TEST_F(DrawsTest, ReferenceFollowsTheRanksOfACandidate) {
  const std::vector<at::Tensor> parts = run_candidate();
  const at::Tensor mask =
      Captured(candidate_ / "step000000/rank00001.h5").tensor("s0/m0/draw/drop/0");
  EXPECT_EQ(mask.sizes(), at::IntArrayRef({3, 4}));
  const at::Tensor alone = run(reference_pass(reference_.path()), 1);
  const at::Tensor next = next_;
  const at::Tensor result =
      run(with(reference_pass(following_.path()), "TTRACE_CANDIDATE", candidate_.path()), 1);
  const Captured captured(step0(following_));
  EXPECT_SAME(captured.tensor("s0/m0/draw/drop/0").narrow(0, 3, 3), mask);
  // The ranks add noise of their own, which no reference can follow: it keeps its own.
  const at::Tensor own = captured.tensor("s0/m0/draw/drop/1");
  EXPECT_SAME((result.narrow(0, 3, 3) - own).abs().gt(0.5), mask);
  EXPECT_SAME(
      (parts[1] - Captured(candidate_ / "step000000/rank00001.h5").tensor("s0/m0/draw/drop/1"))
          .abs()
          .gt(0.5),
      mask);
  EXPECT_FALSE(at::equal(result, alone));
  EXPECT_SAME(next_, next);  // the generator went on as if nobody had followed
  EXPECT_EQ(read_manifest(following_.path()).forced_routing,
            digest_of_choices(Trace::open(candidate_.path())));
}

TEST_F(DrawsTest, NoisePassFollowsItsReferenceSampleBySample) {
  const at::Tensor reference = run(reference_pass(reference_.path()), 1);
  const at::Tensor noise = run(noise_pass(reference_.path(), 1), 2);
  EXPECT_FALSE(at::equal(order_, at::arange(6)));
  EXPECT_LT((noise - reference.index_select(0, order_)).abs().max().item<double>(), 1e-4);
}

TEST_F(DrawsTest, MasksThatAProgramMakesItselfAreFollowedToo) {
  const auto mask_of = [&](const Variables& variables, const at::Tensor& own) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    auto session = Session::from_environment();
    session.attach(root_, {}, {});
    auto step = session.step(0);
    const auto microbatch = step.microbatch(0);
    Scope scope(root_, "drop");
    return scope.mask(own);
  };
  const at::Tensor first = at::arange(6).remainder(2).eq(0);
  EXPECT_SAME(mask_of(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"), first),
              first);
  EXPECT_SAME(
      mask_of(with(reference_pass(following_.path()), "TTRACE_CANDIDATE", candidate_.path()),
              first.logical_not()),
      first);
}

// A kernel that returns more than the numbers that it drew, as fused attention does.
TEST_F(DrawsTest, WhatAKernelKeepsForItselfIsADrawWithoutElements) {
  const at::Tensor input = random_tensor({2, 4});
  const Captured captured = testing::trace_microbatch(root_, [&] {
    Scope scope(root_, "drop");
    const at::Tensor x = scope.in(input);
    at::Tensor noise = at::empty_like(x);
    const at::Tensor y = at::rrelu_with_noise(x, noise, 0.1, 0.3, true);
    EXPECT_TRUE(scope.out(y).defined());
  });
  EXPECT_EQ(captured.record("s0/m0/draw/drop/0").shape, std::vector<std::int64_t>{0});
}

}  // namespace
}  // namespace ttrace
