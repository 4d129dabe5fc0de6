// The session's life: what it leaves alone, what it writes, and what happens when it fails.
#include "hooks/training.h"
#include "trace/file/capture_counts.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

namespace ttrace {
namespace {

using testing::candidate_pass;
using testing::Captured;
using ::testing::ElementsAre;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::step0;
using testing::TemporaryDirectory;
using testing::Variables;
using testing::with;

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Model : Holder {
  torch::nn::Embedding words = add("words", torch::nn::Embedding(13, 8));
  torch::nn::LayerNorm norm = add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  torch::nn::Linear fc1 = add("fc1", torch::nn::Linear(8, 16));
  torch::nn::Linear fc2 = add("fc2", torch::nn::Linear(16, 8));

  Model() { fill_all(*this); }

  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = words->forward(tokens);
    at::Tensor y = fc1->forward(norm->forward(x));
    {
      Scope scope(*this, "activation");
      y = scope.out(scope.in(y).tanh());
    }
    at::Tensor z = fc2->forward(y);
    z += x;
    return at::dropout(z, 0.1, true);  // draws from torch's generator
  }
};

// Three iterations of plain SGD; returns all final parameters and one number from torch's
// generator.
std::vector<at::Tensor> train(Session& session, Model& model) {
  at::manual_seed(5);
  for (int iteration = 0; iteration < 3; ++iteration) {
    auto step = session.step(iteration);
    for (int index = 0; index < 2; ++index) {
      auto microbatch = step.microbatch(index);
      const at::Tensor tokens = (at::arange(12).view({3, 4}) * (index + 1)).remainder(13);
      microbatch.data("tokens", tokens);
      const at::Tensor loss = model.forward(tokens).pow(2).mean(-1);
      microbatch.loss(loss);
      loss.mean().backward();
    }
    std::vector<NamedTensor> gradients;
    std::vector<OptimizerEntry> entries;
    for (const auto& item : model.named_parameters()) {
      gradients.push_back({item.key(), item.value().grad()});
      entries.push_back({item.key(), item.value(), {}, {}, {}});
    }
    step.gradients_reduced(gradients);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : model.parameters()) {
        parameter.add_(parameter.grad(), -0.1);
        parameter.mutable_grad().zero_();
      }
    }
    step.parameters_updated(entries);
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model.parameters()) {
    result.push_back(parameter.detach().clone());
  }
  result.push_back(at::rand({4}));
  return result;
}

// What rank 0 stated in each of two steps, of which the program says something before the first,
// within the first and after it.
TEST(Session, StatesWhatNobodyLooksAtInTheStepsThatItConcerns) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "0:2"));
  {
    Model model;
    auto session = Session::from_environment();
    session.not_seen("updates", "no optimizer");
    session.not_seen("updates", "no optimizer");
    EXPECT_THAT([&] { session.not_seen("upates", "a wrong word"); },
                ::testing::ThrowsMessage<UsageError>(HasSubstr("'upates' is no kind")));
    session.attach(model, Layout(), Annotations());
    {
      auto step = session.step(0);
      session.not_seen("random", "noise of the first step");
    }
    session.not_seen("state", "the counter");
    static_cast<void>(session.step(1));
  }
  const NotSeen always{NotSeenKind::kUpdates, "no optimizer"};
  const auto stated = [&](std::int64_t step) {
    return RankFile(step_file(directory.path(), step, 0)).not_seen();
  };
  EXPECT_THAT(stated(0),
              ElementsAre(always, NotSeen{NotSeenKind::kRandom, "noise of the first step"}));
  EXPECT_THAT(stated(1), ElementsAre(always, NotSeen{NotSeenKind::kState, "the counter"}));
}

// What rank 0 stated of a step that runs backward, or not, and gives what `give` gives.
std::vector<NotSeen> stated_after(bool backward,
                                  const std::function<void(Step&, const Model&)>& give) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  {
    Model model;
    auto session = Session::from_environment();
    session.attach(model, Layout(), Annotations());
    auto step = session.step(0);
    {
      auto microbatch = step.microbatch(0);
      const at::Tensor loss = model.forward(at::arange(12).view({3, 4})).pow(2).mean();
      if (backward) {
        loss.backward();
      }
    }
    give(step, model);
  }
  return RankFile(step_file(directory.path(), 0, 0)).not_seen();
}

// Symptom: gradients that were never averaged passed without a word in a program that gave no
// reduced gradients.
TEST(Session, StatesThatNobodyComparesUpdates) {
  const auto nothing = [](Step& /*step*/, const Model& /*model*/) {};
  const auto gradients = [](Step& step, const Model& model) {
    step.gradients_reduced({{"fc1.bias", model.fc1->bias.grad()}});
  };
  const auto all = [&](Step& step, const Model& model) {
    gradients(step, model);
    step.parameters_updated({{"fc1.bias", model.fc1->bias, {}, {}, {}}});
  };
  ASSERT_EQ(stated_after(true, nothing).size(), 1U);
  EXPECT_EQ(stated_after(true, nothing)[0].kind, NotSeenKind::kUpdates);
  EXPECT_THAT(stated_after(true, nothing)[0].sentence, HasSubstr("no optimizer is attached"));
  ASSERT_EQ(stated_after(true, gradients).size(), 1U);
  EXPECT_THAT(stated_after(true, gradients)[0].sentence, HasSubstr("the optimizer's update"));
  EXPECT_TRUE(stated_after(true, all).empty());
  EXPECT_TRUE(stated_after(false, nothing).empty());
}

TEST(Session, WithoutVariablesThereIsNoThreadNoFileAndNoCallback) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(Variables{{"TTRACE_DIR", directory.path()}});
  Model model;
  const std::size_t threads = thread_count();
  auto session = Session::from_environment();
  EXPECT_FALSE(session.active());
  session.attach(model, Layout(), Annotations());
  EXPECT_TRUE(session.load_parameters().empty());
  auto step = session.step(0);
  auto microbatch = step.microbatch(0);
  EXPECT_THAT(microbatch.permutation(3), ElementsAre(0, 1, 2));
  EXPECT_FALSE(at::hasGlobalCallbacks());
  EXPECT_EQ(thread_count(), threads);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Session, TrainingIsBitIdenticalWithAndWithoutTracing) {
  std::vector<at::Tensor> plain;
  {
    Model model;
    auto session = Session::from_environment();
    plain = train(session, model);
  }
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "0:3"));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  const std::vector<at::Tensor> traced = train(session, model);
  ASSERT_EQ(plain.size(), traced.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_SAME(plain[i], traced[i]);
  }
  EXPECT_TRUE(is_complete(directory.path()));
}

TEST(Session, WriterThreadAndCallbackLiveFromTheFirstToTheLastTracedStep) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "1:3"));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  const std::size_t threads = thread_count();
  { const auto untraced = session.step(0); }
  EXPECT_EQ(thread_count(), threads);
  { const auto traced = session.step(1); }
  EXPECT_EQ(thread_count(), threads + 1);
  { const auto traced = session.step(2); }
  EXPECT_EQ(thread_count(), threads);
  EXPECT_FALSE(at::hasGlobalCallbacks());
  { const auto untraced = session.step(3); }
  EXPECT_FALSE(std::filesystem::exists(directory / "step000000"));
  EXPECT_TRUE(std::filesystem::exists(directory / "step000001/rank00000.h5"));
  EXPECT_TRUE(std::filesystem::exists(directory / "step000002/rank00000.h5"));
  EXPECT_FALSE(std::filesystem::exists(directory / "step000003"));
}

TEST(Session, ManifestSaysWhatTheTraceIs) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(
      with(reference_pass(directory.path()), "TTRACE_STEPS", "0:2"), "TTRACE_PRECISION", "f32"));
  Model model;
  auto session = Session::from_environment();
  session.describe({{{"hidden", "8"}}, {{"seed", "1"}}, {{"program", "test"}}, "f32"});
  session.attach(model, Layout().add("tp", 1, 0), Annotations());
  const Manifest manifest = read_manifest(directory.path());
  EXPECT_EQ(manifest.pass, "reference");
  EXPECT_EQ(manifest.world_size, 1);
  EXPECT_THAT(manifest.steps, ElementsAre(0, 1));
  EXPECT_EQ(manifest.precision, "f32");
  EXPECT_EQ(manifest.layout.at("tp"), "1");
  EXPECT_EQ(manifest.model.at("hidden"), "8");
  EXPECT_EQ(manifest.data.at("seed"), "1");
  EXPECT_EQ(manifest.versions.at("program"), "test");
  EXPECT_THAT(manifest.versions.at("torch"), ::testing::StartsWith("2."));
  EXPECT_FALSE(manifest.versions.at("ttrace").empty());
}

TEST(Session, ManifestSaysWhatTheMachineDoesToNumbersWhenTheFirstTracedStepBegins) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "1:3"));
  const PassEnvironment workspace(Variables{{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}});
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  EXPECT_TRUE(read_manifest(directory.path()).numerics.empty());
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  { const auto untraced = session.step(0); }
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  { const auto traced = session.step(1); }
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
  { const auto later = session.step(2); }
  const Section facts = read_manifest(directory.path()).numerics;
  EXPECT_EQ(facts.at("device"), "cpu");
  EXPECT_EQ(facts.at("f32_products"), "f32");
  EXPECT_EQ(facts.at("deterministic_algorithms"), "on");
  EXPECT_EQ(facts.at("flush_denormal"), "off");
  EXPECT_EQ(facts.at("threads"), std::to_string(at::get_num_threads()));
  EXPECT_EQ(facts.at("cuda_CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  for (const char* key : {"mkldnn_matmul",
                          "mkldnn_conv",
                          "cuda_matmul",
                          "cuda_cudnn_tf32",
                          "cuda_cudnn_deterministic",
                          "cuda_cudnn_benchmark",
                          "cuda_bf16_reduction",
                          "cuda_fp16_reduction"}) {
    EXPECT_FALSE(facts.at(key).empty()) << key;
  }
  EXPECT_FALSE(facts.contains("cuda_NVIDIA_TF32_OVERRIDE"));
}

// What CUDA would do is no fact of a run on CPU tensors; what oneDNN does is measured.
TEST(Session, ProductsOfF32AreAsTheProcessorRoundsTheirOperands) {
  const auto products = [](at::Float32Backend backend, at::Float32Precision precision) {
    const TemporaryDirectory directory;
    const PassEnvironment environment(reference_pass(directory.path()));
    Model model;
    auto session = Session::from_environment();
    session.attach(model, Layout(), Annotations());
    at::Context& context = at::globalContext();
    const auto before = context.float32Precision(backend, at::Float32Op::MATMUL);
    context.setFloat32Precision(backend, at::Float32Op::MATMUL, precision);
    { const auto traced = session.step(0); }
    // Large enough for oneDNN; 1 + 2^-13 + 2^-9 shows both roundings.
    const at::Tensor left = at::full({128, 128}, 1.0F + 1.0F / 512 + 1.0F / 8192);
    const auto mean = (left.mm(at::ones({128, 128})) / 128).flatten()[0].item<float>();
    context.setFloat32Precision(backend, at::Float32Op::MATMUL, before);
    const std::string real = mean > 1.0F + 1.0F / 512    ? "f32"
                             : mean > 1.0F + 1.0F / 8192 ? "tf32"
                                                         : "bf16";
    EXPECT_EQ(read_manifest(directory.path()).numerics.at("f32_products"), real);
    return real;
  };
  EXPECT_EQ(products(at::Float32Backend::CUDA, at::Float32Precision::TF32), "f32");
  products(at::Float32Backend::MKLDNN, at::Float32Precision::BF16);
  products(at::Float32Backend::MKLDNN, at::Float32Precision::TF32);
}

TEST(Session, ParametersOfAnotherPrecisionAreRefused) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(
      with(reference_pass(directory.path()), "TTRACE_PRECISION", "bf16"));
  Model model;
  auto session = Session::from_environment();
  try {
    session.attach(model, Layout(), Annotations());
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("words.weight is f32"));
    EXPECT_THAT(error.message(), HasSubstr("bf16"));
  }
  model.to(at::kBFloat16);
  EXPECT_NO_THROW(session.attach(model, Layout(), Annotations()));
}

// The pass that repeats the reference in the candidate's precision failed for programs in F16,
// before it attached: "TTRACE_PRECISION='f16' is not understood".
TEST(Session, HalfPrecisionProgramIsTracedWhereF16IsAskedFor) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(
      with(reference_pass(directory.path()), "TTRACE_PRECISION", "f16"));
  Model model;
  model.to(at::kHalf);
  auto session = Session::from_environment();
  EXPECT_EQ(session.precision("f32"), "f16");
  session.describe({.precision = "f16"});
  EXPECT_NO_THROW(session.attach(model, Layout(), Annotations()));
  EXPECT_EQ(read_manifest(directory.path()).precision, "f16");
  EXPECT_EQ(read_manifest(directory.path()).intended, "f16");
}

TEST(Session, ManifestKeepsWhatTheProgramWantedAndNotWhatItIsAskedFor) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  {
    auto session = Session::from_environment();
    EXPECT_EQ(session.precision(""), "");
    session.describe({.precision = "bf16"});
    session.attach(model, Layout(), Annotations());
    EXPECT_EQ(read_manifest(directory.path()).intended, "");
  }
  auto session = Session::from_environment();
  EXPECT_EQ(session.precision("f32"), "f32");
  EXPECT_EQ(session.precision(""), "");
  session.describe({.precision = "bf16"});
  session.attach(model, Layout(), Annotations());
  EXPECT_EQ(read_manifest(directory.path()).intended, "f32");
  EXPECT_EQ(read_manifest(directory.path()).precision, "bf16");
}

TEST(Session, AnnotationThatDoesNotFitAParameterIsRefusedAtAttach) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  auto session = Session::from_environment();
  const auto annotations =
      Annotations::parse("tensors:\n  - path: fc1.weight\n    value: \"a b c\"\n");
  EXPECT_THROW(session.attach(model, Layout(), annotations), UsageError);
}

TEST(Session, OneSessionIsAttachedAtATimeAndASecondMayFollow) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  {
    auto first = Session::from_environment();
    first.attach(model, Layout(), Annotations());
    auto second = Session::from_environment();
    EXPECT_THROW(second.attach(model, Layout(), Annotations()), UsageError);
  }
  auto third = Session::from_environment();
  EXPECT_NO_THROW(third.attach(model, Layout(), Annotations()));
  { const auto step = third.step(0); }
  EXPECT_TRUE(std::filesystem::exists(step0(directory)));
}

TEST(Session, MisuseIsExplained) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "0:2"));
  Model model;
  auto session = Session::from_environment();
  EXPECT_THROW(static_cast<void>(session.step(0)), UsageError);
  EXPECT_THROW(session.load_parameters(), UsageError);
  session.attach(model, Layout(), Annotations());
  {
    const auto step = session.step(0);
    EXPECT_THROW(static_cast<void>(session.step(1)), UsageError);
  }
  EXPECT_THROW(static_cast<void>(session.step(0)), UsageError);
  EXPECT_THROW(session.load_parameters(), UsageError);
}

const char* const kBadAnnotation = "tensors:\n  - path: fc1\n    value: \"only_one_dimension\"\n";

TEST(Session, ErrorInAHookStopsTracingButNotTraining) {
  std::vector<at::Tensor> plain;
  {
    Model model;
    auto session = Session::from_environment();
    plain = train(session, model);
  }
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_STEPS", "0:2"));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations::parse(kBadAnnotation));
  const std::vector<at::Tensor> traced = train(session, model);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_SAME(plain[i], traced[i]);
  }
  for (const char* step : {"step000000", "step000001"}) {
    EXPECT_FALSE(std::filesystem::exists(directory / (std::string(step) + "/rank00000.h5")));
    const std::string message = text_of(directory / (std::string(step) + "/rank00000.failed"));
    EXPECT_THAT(message, HasSubstr("s0/m0/output/fc1/0 does not fit its annotation"));
  }
}

TEST(Session, RaiseThrowsTheErrorAtTheNextCall) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(
      with(reference_pass(directory.path()), "TTRACE_ON_ERROR", "raise"));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations::parse(kBadAnnotation));
  try {
    static_cast<void>(train(session, model));
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("s0/m0/output/fc1/0 does not fit its annotation"));
  }
  EXPECT_TRUE(std::filesystem::exists(directory / "step000000/rank00000.failed"));
}

TEST(Session, ExceptionOfTheProgramMarksTheStepFailed) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  EXPECT_THROW(
      {
        auto step = session.step(0);
        auto microbatch = step.microbatch(0);
        static_cast<void>(model.forward(at::arange(4)));
        throw std::runtime_error("out of data");
      },
      std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(step0(directory)));
  EXPECT_THAT(text_of(directory / "step000000/rank00000.failed"),
              HasSubstr("training program threw"));
}

TEST(Session, StepThatAProgramGivesUpIsMarkedFailedWithItsReason) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  {
    auto step = session.step(0);
    EXPECT_TRUE(step.traced());
    step.fail("no data left");
  }
  EXPECT_THAT(text_of(directory / "step000000/rank00000.failed"), HasSubstr("no data left"));
  EXPECT_FALSE(std::filesystem::exists(step0(directory)));
  auto later = session.step(1);  // TTRACE_STEPS is 0:1
  EXPECT_FALSE(later.traced());
  later.fail("not traced");
  EXPECT_FALSE(std::filesystem::exists(directory / "step000001"));
}

TEST(Session, UnwritableDirectoryFailsTheStepOnly) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "step000000") << "a file where the folder should be";
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  EXPECT_EQ(train(session, model).size(), 8U);
}

TEST(Session, ScopeOnAForeignModuleIsAnErrorOfTheStep) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  Model other;
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  {
    auto step = session.step(0);
    auto microbatch = step.microbatch(0);
    static_cast<void>(other.forward(at::arange(4)));
  }
  EXPECT_THAT(text_of(directory / "step000000/rank00000.failed"), HasSubstr("'activation'"));
}

TEST(Session, EveryTensorOfTwoMicrobatchesIsThereInExecutionOrder) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  Model model;
  {
    auto session = Session::from_environment();
    session.attach(model, Layout(), Annotations());
    static_cast<void>(train(session, model));
  }
  const Captured captured(step0(directory));
  EXPECT_THAT(captured.ids_with("/m1/"),
              ElementsAre("s0/m1/data/tokens/0",
                          "s0/m1/output/words/0",
                          "s0/m1/output/norm/0",
                          "s0/m1/output/fc1/0",
                          "s0/m1/output/activation/0",
                          "s0/m1/output/fc2/0",
                          "s0/m1/loss/loss/0",
                          "s0/m1/grad_output/loss/0",
                          "s0/m1/grad_output/fc2/0",
                          "s0/m1/param_grad/fc2.bias/0",
                          "s0/m1/param_grad/fc2.weight/0",
                          "s0/m1/grad_output/activation/0",
                          "s0/m1/grad_output/fc1/0",
                          "s0/m1/param_grad/fc1.bias/0",
                          "s0/m1/param_grad/fc1.weight/0",
                          "s0/m1/grad_output/norm/0",
                          "s0/m1/param_grad/norm.weight/0",
                          "s0/m1/param_grad/norm.bias/0",
                          "s0/m1/grad_output/words/0",
                          "s0/m1/param_grad/words.weight/0"));
  EXPECT_TRUE(captured.notes().empty());
}

TEST(Session, WhatAProgramCannotGiveIsNotRecordedAndTheManifestSaysSo) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  RunDescription description;
  description.untraced = {R"(/param_grad/fc\d\.)"};
  RunDescription wrong;
  wrong.untraced = {"("};
  Model model;
  {
    auto session = Session::from_environment();
    EXPECT_THROW(session.describe(wrong), UsageError);
    session.describe(description);
    session.attach(model, Layout(), Annotations());
    static_cast<void>(train(session, model));
  }
  const Captured captured(step0(directory));
  EXPECT_THAT(captured.ids_with("/m1/param_grad/"),
              ElementsAre("s0/m1/param_grad/norm.weight/0",
                          "s0/m1/param_grad/norm.bias/0",
                          "s0/m1/param_grad/words.weight/0"));
  EXPECT_THAT(captured.ids_with("/main_grad/fc1.weight/"),
              ElementsAre("s0/main_grad/fc1.weight/0"));
  EXPECT_EQ(read_manifest(directory.path()).untraced, description.untraced);
}

TEST(Session, CountingCaptureWritesNothingButWhatTheTraceWouldHold) {
  const TemporaryDirectory counted;
  const TemporaryDirectory traced;
  for (const TemporaryDirectory* directory : {&counted, &traced}) {
    Variables variables = with(reference_pass(directory->path()), "TTRACE_STEPS", "1:3");
    const PassEnvironment environment(directory == &counted ? with(variables, "TTRACE_COUNT", "1")
                                                            : variables);
    Model model;
    auto session = Session::from_environment();
    session.attach(model, Layout(), Annotations());
    session.load_parameters();
    static_cast<void>(train(session, model));
  }
  const CaptureCounts counts = read_counts(counted.path()).front();
  std::map<std::int64_t, std::map<Kind, TensorCount>> expected;
  for (const std::int64_t step : {1, 2}) {
    const RankFile file(step_file(traced.path(), step, 0));
    for (const Record& record : file.records()) {
      expected[step][record.id.kind] += {1, record.bytes};
    }
  }
  EXPECT_EQ(counts.steps, expected);
  TensorCount start;
  const RankFile parameters(start_file(traced.path(), 0));
  for (const Record& record : parameters.records()) {
    start += {1, record.bytes};
  }
  EXPECT_EQ(counts.start, start);
  // And the claim on the place of its rank.
  EXPECT_THAT(
      std::vector<std::filesystem::path>(std::filesystem::directory_iterator(counted.path()), {}),
      ::testing::UnorderedElementsAre(std::filesystem::path(counted / "counts"),
                                      std::filesystem::path(counted / "ranks")));
}

}  // namespace
}  // namespace ttrace
