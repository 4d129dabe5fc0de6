// load_parameters and fill_parameters.
#include "hooks/training.h"

#include <ttrace/error.h>
#include <ttrace/start_from.h>

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using testing::candidate_pass;
using ::testing::ElementsAre;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using ::testing::IsEmpty;
using testing::PassEnvironment;
using testing::reference_pass;
using testing::TemporaryDirectory;
using testing::with;

const char* const kAnnotations = R"(
sizes: {v: 5}
tensors:
  - path: words.weight
    value: "v[tp] h"
  - path: fc.weight
    value: "(2*f[tp]) h"
)";

// Vocabulary of 5, padded to 6 and cut in two; gated fc1 of 4 gate and 4 up rows, cut in two.
struct Words : Holder {
  torch::nn::Embedding words;
  torch::nn::Linear fc;
  Words(std::int64_t vocabulary, std::int64_t rows, const char* fc_name = "fc")
      : words(add("words", torch::nn::Embedding(vocabulary, 3))),
        fc(add(fc_name, torch::nn::Linear(torch::nn::LinearOptions(3, rows).bias(false)))) {}
};

class ConsistentStart : public ::testing::Test {
 protected:
  ConsistentStart() : reference_(5, 8) {
    fill_all(reference_);
    const PassEnvironment environment(reference_pass(trace_.path()));
    auto session = Session::from_environment();
    session.attach(reference_, Layout(), Annotations::parse(kAnnotations));
    EXPECT_THAT(session.load_parameters(), IsEmpty());
  }

  std::vector<std::string> load(Words& model, const Layout& layout, bool own = false) {
    const TemporaryDirectory directory;
    auto variables = candidate_pass(directory.path(), trace_.path());
    const PassEnvironment environment(own ? with(variables, "TTRACE_START", "own") : variables);
    auto session = Session::from_environment();
    session.attach(model, layout, Annotations::parse(kAnnotations));
    return session.load_parameters();
  }

  static Layout tp(int rank) { return Layout{rank, 2, {}}.add("tp", 2, rank); }

  Words reference_;
  TemporaryDirectory trace_;
};

TEST_F(ConsistentStart, ShardsAreCutOutAndPaddingIsLeftAlone) {
  Words model(3, 4);
  {
    const at::NoGradGuard no_grad;
    model.words->weight.fill_(7);
    model.fc->weight.fill_(7);
  }
  EXPECT_THAT(load(model, tp(1)), ElementsAre("words.weight", "fc.weight"));
  const at::Tensor words = model.words->weight.detach();
  EXPECT_SAME(words.narrow(0, 0, 2), reference_.words->weight.detach().narrow(0, 3, 2));
  EXPECT_SAME(words[2], at::full({3}, 7.0F));
  const at::Tensor whole = reference_.fc->weight.detach();
  EXPECT_SAME(model.fc->weight.detach(), at::cat({whole.narrow(0, 2, 2), whole.narrow(0, 6, 2)}));
  EXPECT_TRUE(model.fc->weight.requires_grad());
  EXPECT_THAT(load(model, tp(1)), IsEmpty());
}

TEST_F(ConsistentStart, PrecisionIsConverted) {
  Words model(3, 4);
  model.to(at::kBFloat16);
  EXPECT_FALSE(load(model, tp(0)).empty());
  EXPECT_SAME(model.words->weight.detach(),
              reference_.words->weight.detach().narrow(0, 0, 3).to(at::kBFloat16));
}

TEST_F(ConsistentStart, OwnKeepsTheProgramsParameters) {
  Words model(3, 4);
  const at::Tensor before = model.fc->weight.detach().clone();
  EXPECT_THAT(load(model, tp(0), true), IsEmpty());
  EXPECT_SAME(model.fc->weight.detach(), before);
}

TEST_F(ConsistentStart, UnknownParameterIsRefusedWithTheNearestName) {
  Words model(5, 8, "fd");
  try {
    load(model, Layout());
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("no parameter fd.weight"));
    EXPECT_THAT(error.message(), HasSubstr("nearest name is fc.weight"));
  }
}

TEST_F(ConsistentStart, ShapesThatClashAreBothNamed) {
  Words model(3, 6);
  try {
    load(model, tp(0));
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("12x3"));
    EXPECT_THAT(error.message(), HasSubstr("8x3"));
  }
}

TEST_F(ConsistentStart, ReferenceMustBeNamed) {
  const TemporaryDirectory directory;
  auto variables = candidate_pass(directory.path(), "");
  const PassEnvironment environment(variables);
  Words model(5, 8);
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations::parse(kAnnotations));
  EXPECT_THROW(session.load_parameters(), UsageError);
}

TEST_F(ConsistentStart, FilledShardsEqualTheFilledWhole) {
  const Annotations annotations = Annotations::parse(kAnnotations);
  for (int rank = 0; rank < 2; ++rank) {
    Words model(3, 4);
    fill_parameters({{"words.weight", model.words->weight}, {"fc.weight", model.fc->weight}},
                    tp(rank),
                    annotations,
                    1);
    const at::Tensor whole = reference_.fc->weight.detach();
    EXPECT_SAME(model.fc->weight.detach(),
                at::cat({whole.narrow(0, 2 * rank, 2), whole.narrow(0, 4 + 2 * rank, 2)}));
  }
}

// A run whose second step is traced: `words` is trained, `fc` is not.
class StartFrom : public ConsistentStart {
 protected:
  StartFrom() {
    const PassEnvironment environment(with(reference_pass(trained_.path()), "TTRACE_STEPS", "1:2"));
    auto session = Session::from_environment();
    session.attach(reference_, Layout(), Annotations::parse(kAnnotations));
    static_cast<void>(session.load_parameters());
    for (int iteration = 0; iteration < 2; ++iteration) {
      auto step = session.step(iteration);
      const at::NoGradGuard no_grad;
      reference_.words->weight.add_(1.0);
      OptimizerEntry entry;
      entry.path = "words.weight";
      entry.param = reference_.words->weight;
      step.parameters_updated({entry});
    }
  }

  TemporaryDirectory trained_;
};

TEST_F(StartFrom, TakesWhatTheLastStepLeftInAnyLayoutAndPrecision) {
  Words model(3, 4);
  model.to(at::kBFloat16);
  start_from(trained_.path(),
             {{"words.weight", model.words->weight}, {"fc.weight", model.fc->weight}},
             tp(0),
             Annotations::parse(kAnnotations));
  EXPECT_SAME(model.words->weight.detach(),
              reference_.words->weight.detach().narrow(0, 0, 3).to(at::kBFloat16));
  const at::Tensor whole = reference_.fc->weight.detach().to(at::kBFloat16);
  EXPECT_SAME(model.fc->weight.detach(), at::cat({whole.narrow(0, 0, 2), whole.narrow(0, 4, 2)}));
}

TEST_F(StartFrom, RefusesAParameterThatTheTraceLacks) {
  Words model(5, 8, "fd");
  EXPECT_THROW(
      start_from(trained_.path(), {{"fd.weight", model.fc->weight}}, Layout(), Annotations()),
      UsageError);
}

}  // namespace
}  // namespace ttrace
