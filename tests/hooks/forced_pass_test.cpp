// Forced passes: every operator's result for another run's values.
#include "hooks/training.h"
#include "trace/file/manifest.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using testing::candidate_pass;
using testing::Captured;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::step0;
using testing::TemporaryDirectory;
using testing::Variables;
using testing::with;

// The errors of a run, as factors.
struct Faults {
  double first = 1.0;     // of what the scope `first` gives
  double gradient = 1.0;  // of the gradient that fc2 hands on
  double reduced = 1.0;   // of the main gradients
};

// A linear in a scope, a scope without parameters, a linear; the loss is a sum of squares.
struct FaultyModel : Holder {
  torch::nn::Linear fc1 = add("fc1", torch::nn::Linear(4, 3));
  torch::nn::Linear fc2 = add("fc2", torch::nn::Linear(3, 2));

  at::Tensor forward(const at::Tensor& x, const Faults& faults) {
    at::Tensor hidden = x;
    {
      Scope scope(*this, "first");
      hidden = scope.out(fc1->forward(scope.in(hidden)) * faults.first);
    }
    {
      Scope scope(*this, "core");
      hidden = scope.out(scope.in(hidden).tanh());
    }
    at::Tensor y = fc2->forward(hidden);
    y.register_hook([factor = faults.gradient](const at::Tensor& g) { return g * factor; });
    return y.pow(2).sum();
  }
};

class ForcedPass : public ::testing::Test {
 protected:
  Captured run(const Variables& variables, const Faults& faults, at::ScalarType type = at::kFloat) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    FaultyModel model;
    fill_all(model);
    model.to(type);
    auto session = Session::from_environment();
    RunDescription description;
    description.precision = session.precision("f32");
    session.describe(std::move(description));
    session.attach(model, Layout(), {});
    {
      auto step = session.step(0);
      {
        const auto microbatch = step.microbatch(0);
        model.forward(input_.to(type), faults).backward();
      }
      main_grads_.clear();
      for (const auto& item : model.named_parameters()) {
        main_grads_.push_back({item.key(), item.value().grad() * faults.reduced});
      }
      step.gradients_reduced(main_grads_);
      step.scalar("done", 1.0);  // where an error inside a hook is thrown
    }
    return Captured(variables.at("TTRACE_DIR") + "/step000000/rank00000.h5");
  }
  Captured run_candidate(const Faults& faults) {
    return run(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"), faults);
  }
  [[nodiscard]] Variables forced() const {
    return {{"TTRACE_PASS", "forced"},
            {"TTRACE_DIR", forced_.path()},
            {"TTRACE_CANDIDATE", candidate_.path()}};
  }

  const at::Tensor input_ = random_tensor({5, 4}, 3);
  std::vector<NamedTensor> main_grads_;  // after gradients_reduced()
  TemporaryDirectory candidate_;
  TemporaryDirectory forced_;
};

TEST_F(ForcedPass, EveryOperatorGetsTheCandidatesInputsAndRecordsItsOwnResult) {
  const Captured candidate = run_candidate({.first = 1.5});
  const Captured captured = run(forced(), {});
  const at::Tensor wrong = candidate.tensor("s0/m0/output/first/0");
  EXPECT_SAME(captured.tensor("s0/m0/output/first/0") * 1.5, wrong);
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"), wrong.tanh());
  EXPECT_SAME(captured.tensor("s0/m0/output/fc2/0"), candidate.tensor("s0/m0/output/fc2/0"));
}

TEST_F(ForcedPass, EveryBackwardGetsTheCandidatesGradientAndRecordsItsOwnResult) {
  const Captured candidate = run_candidate({.gradient = 3.0});
  const Captured captured = run(forced(), {});
  const auto expect_factor = [&](const std::string& id, double factor) {
    EXPECT_TRUE(at::allclose(captured.tensor(id) * factor, candidate.tensor(id))) << id;
  };
  expect_factor("s0/m0/grad_output/fc2/0", 1.0);
  expect_factor("s0/m0/grad_output/core/0", 3.0);  // where the factor came in
  expect_factor("s0/m0/param_grad/fc2.weight/0", 3.0);
  expect_factor("s0/m0/grad_output/first/0", 1.0);  // follows from the candidate's own
  expect_factor("s0/m0/param_grad/fc1.weight/0", 1.0);
  expect_factor("s0/main_grad/fc2.weight/0", 1.0);
}

TEST_F(ForcedPass, ReducedGradientsAreReplacedBeforeTheOptimizerSeesThem) {
  const Captured candidate = run_candidate({.reduced = 0.5});
  const Captured captured = run(forced(), {});
  const at::Tensor wrong = candidate.tensor("s0/main_grad/fc2.weight/0");
  EXPECT_SAME(captured.tensor("s0/main_grad/fc2.weight/0") * 0.5, wrong);
  for (const NamedTensor& gradient : main_grads_) {
    EXPECT_SAME(gradient.tensor, candidate.tensor("s0/main_grad/" + gradient.path + "/0"));
  }
}

TEST_F(ForcedPass, HigherPrecisionIsAskedForAndTheCandidatesValuesAreWidened) {
  const Captured candidate = run_candidate({.first = 1.5});
  const Captured captured = run(with(forced(), "TTRACE_PRECISION", "f64"), {}, at::kDouble);
  EXPECT_EQ(read_manifest(forced_.path()).precision, "f64");
  EXPECT_EQ(read_manifest(forced_.path()).pass, "forced");
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"),
              candidate.tensor("s0/m0/output/first/0").to(at::kDouble).tanh());
}

// Symptom: a gradient that an in-place addition had hidden came a second time, as the candidate's,
// and was recorded as the reference's own.
TEST_F(ForcedPass, GradientBehindAnInPlaceAdditionIsTheOperatorsOwn) {
  struct InPlace : Holder {
    torch::nn::Linear fc = add("fc", torch::nn::Linear(4, 4));
  };
  const auto run_once = [&](const Variables& variables, double factor) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    InPlace model;
    fill_all(model);
    auto session = Session::from_environment();
    session.attach(model, Layout(), {});
    {
      auto step = session.step(0);
      const auto microbatch = step.microbatch(0);
      at::Tensor y = model.fc->forward(input_);
      y.add_(1.0);
      (y.pow(2).sum() * factor).backward();
    }
    return Captured(variables.at("TTRACE_DIR") + "/step000000/rank00000.h5");
  };
  const Captured candidate =
      run_once(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"), 2.0);
  const Captured captured = run_once(forced(), 1.0);
  EXPECT_TRUE(at::allclose(captured.tensor("s0/m0/grad_output/fc/0") * 2,
                           candidate.tensor("s0/m0/grad_output/fc/0")));
  EXPECT_TRUE(at::allclose(captured.tensor("s0/m0/param_grad/fc.weight/0"),
                           candidate.tensor("s0/m0/param_grad/fc.weight/0")));
}

TEST_F(ForcedPass, WhatTheCandidateLacksIsTheReferencesOwnAndNoted) {
  run(with(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"),
           "TTRACE_FILTER",
           "fc2|param"),
      {.first = 1.5});
  const Captured captured = run(forced(), {});
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"),
              captured.tensor("s0/m0/output/first/0").tanh());
  ASSERT_FALSE(captured.notes().empty());
  EXPECT_THAT(captured.notes().front(), HasSubstr("the candidate has no s0/m0/"));
}

TEST_F(ForcedPass, WithoutACandidateIsRefused) {
  const PassEnvironment environment({{"TTRACE_PASS", "forced"}, {"TTRACE_DIR", forced_.path()}});
  try {
    static_cast<void>(Session::from_environment());
    FAIL() << "a forced pass began without values";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("needs TTRACE_CANDIDATE"));
  }
}

}  // namespace
}  // namespace ttrace
