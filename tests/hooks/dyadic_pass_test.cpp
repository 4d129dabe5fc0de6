// Golden passes, and passes whose modules are given small integers (TTRACE_INPUTS=dyadic).
#include "hooks/training.h"
#include "trace/base/dyadic_inputs.h"
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
using testing::reference_pass;
using testing::TemporaryDirectory;
using testing::Variables;
using testing::with;

// A linear, a scope without parameters, a linear; the loss is a sum of squares.
struct LinearsWithTanh : Holder {
  torch::nn::Linear fc1 = add("fc1", torch::nn::Linear(4, 3));
  torch::nn::Linear fc2 = add("fc2", torch::nn::Linear(3, 2));

  at::Tensor forward(const at::Tensor& x, double factor) {
    at::Tensor hidden = x;
    {
      Scope scope(*this, "first");
      hidden = scope.out(fc1->forward(scope.in(hidden)) * factor);
    }
    {
      Scope scope(*this, "core");
      hidden = scope.out(scope.in(hidden).tanh());
    }
    return fc2->forward(hidden).pow(2).sum();
  }
};

class DyadicPass : public ::testing::Test {
 protected:
  Captured run(const Variables& variables, double factor = 1.0, at::ScalarType type = at::kFloat) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    LinearsWithTanh model;
    fill_all(model);
    model.to(type);
    auto session = Session::from_environment();
    RunDescription description;
    description.precision = session.precision("f32");
    session.describe(std::move(description));
    session.attach(model, Layout(), {});
    session.load_parameters();
    {
      auto step = session.step(0);
      {
        const auto microbatch = step.microbatch(0);
        model.forward(input_.to(type), factor).backward();
      }
      std::vector<NamedTensor> gradients;
      for (const auto& item : model.named_parameters()) {
        gradients.push_back({item.key(), item.value().grad()});
      }
      step.gradients_reduced(gradients);
      step.scalar("done", 1.0);  // where an error inside a hook is thrown
    }
    return Captured(variables.at("TTRACE_DIR") + "/step000000/rank00000.h5");
  }
  [[nodiscard]] Variables dyadic_reference() const {
    return with(reference_pass(reference_.path()), "TTRACE_INPUTS", "dyadic");
  }
  [[nodiscard]] Variables golden() const {
    return {{"TTRACE_PASS", "golden"},
            {"TTRACE_DIR", other_.path()},
            {"TTRACE_REFERENCE", reference_.path()},
            {"TTRACE_PRECISION", "f64"}};
  }

  const at::Tensor input_ = random_tensor({5, 4}, 3);
  TemporaryDirectory reference_;
  TemporaryDirectory other_;
};

TEST_F(DyadicPass, GoldenPassStartsFromTheReferencesRoundedParameters) {
  const Captured reference = run(reference_pass(reference_.path()));
  const Captured captured = run(with(golden(), "TTRACE_START", "own"), 1.0, at::kDouble);
  EXPECT_EQ(read_manifest(other_.path()).pass, "golden");
  EXPECT_EQ(read_manifest(other_.path()).precision, "f64");
  EXPECT_SAME(captured.tensor("s0/param/fc1.weight/0"),
              reference.tensor("s0/param/fc1.weight/0").to(at::kDouble));
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"),
              captured.tensor("s0/m0/output/first/0").tanh());
}

TEST_F(DyadicPass, GoldenPassWithoutAReferenceIsRefused) {
  const PassEnvironment environment({{"TTRACE_PASS", "golden"}, {"TTRACE_DIR", other_.path()}});
  try {
    static_cast<void>(Session::from_environment());
    FAIL() << "a golden pass began without parameters";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("needs TTRACE_REFERENCE"));
  }
}

TEST_F(DyadicPass, LinearsOfSmallIntegersAreExactAndTheRestIsNot) {
  const Captured reference = run(dyadic_reference());
  const Captured exact = run(with(golden(), "TTRACE_INPUTS", "dyadic"), 1.0, at::kDouble);
  EXPECT_EQ(read_manifest(reference_.path()).data.at(kInputsKey), kDyadicInputs);
  for (const std::string id : {"s0/m0/output/first/0",
                               "s0/m0/output/fc2/0",
                               "s0/m0/param_grad/fc1.weight/0",
                               "s0/m0/param_grad/fc2.weight/0",
                               "s0/m0/grad_output/core/0"}) {
    EXPECT_SAME(reference.tensor(id).to(at::kDouble), exact.tensor(id));
    EXPECT_GT(reference.tensor(id).abs().max().item<double>(), 0.0) << id;
  }
  EXPECT_FALSE(at::equal(reference.tensor("s0/m0/output/core/0").to(at::kDouble),
                         exact.tensor("s0/m0/output/core/0")));
}

TEST_F(DyadicPass, CandidateIsGivenTheSameValuesAndDiffersOnlyWhereItsOperatorDoes) {
  const Captured reference = run(dyadic_reference());
  const Captured captured =
      run(with(candidate_pass(other_.path(), reference_.path()), "TTRACE_INPUTS", "dyadic"), 3.0);
  EXPECT_SAME(captured.tensor("s0/m0/output/first/0"),
              reference.tensor("s0/m0/output/first/0") * 3);
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"), reference.tensor("s0/m0/output/core/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/fc2/0"), reference.tensor("s0/m0/output/fc2/0"));
}

// Otherwise the two would compute with different values from there on.
TEST_F(DyadicPass, CandidateKeepsItsOwnValuesWhereTheReferenceRecordedNone) {
  run(with(dyadic_reference(), "TTRACE_FILTER", "fc|param"));
  const Captured captured =
      run(with(candidate_pass(other_.path(), reference_.path()), "TTRACE_INPUTS", "dyadic"));
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"),
              captured.tensor("s0/m0/output/first/0").tanh());
  EXPECT_TRUE(captured.notes().empty());
}

TEST_F(DyadicPass, CandidateWithoutAReferenceIsRefused) {
  const PassEnvironment environment(
      {{"TTRACE_PASS", "candidate"}, {"TTRACE_DIR", other_.path()}, {"TTRACE_INPUTS", "dyadic"}});
  EXPECT_THROW(static_cast<void>(Session::from_environment()), UsageError);
}

}  // namespace
}  // namespace ttrace
