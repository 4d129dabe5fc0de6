// Tensors that programs place themselves: flat shards of a distributed optimizer and rows of
// experts. Also tensors that lie elsewhere than the tensors they were made from: operands of FP8
// products.
#include "hooks/training.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

#include <cstring>
#include <functional>

namespace ttrace {
namespace {

using testing::Captured;
using ::testing::ElementsAre;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::TemporaryDirectory;
using testing::trace_microbatch;
using testing::trace_step;

Annotations annotated(const std::string& path, const std::string& dims) {
  return Annotations::parse("tensors:\n  - path: " + path + "\n    value: " + dims +
                            "\n    inputs: [\"" + dims + "\"]\n");
}

// Runs `body(step)` as step 0 of one rank of two or more into `directory`.
void trace_rank(const TemporaryDirectory& directory,
                const torch::nn::Module& root,
                const Layout& layout,
                const Annotations& annotations,
                const std::function<void(Step&)>& body) {
  auto variables = reference_pass(directory.path());
  variables["TTRACE_ON_ERROR"] = "raise";
  const PassEnvironment environment(variables);
  auto session = Session::from_environment();
  session.attach(root, layout, annotations);
  auto step = session.step(0);
  body(step);
}

// One tensor of a trace, merged over its ranks.
class Merged {
 public:
  Merged(const TemporaryDirectory& directory, const std::string& id)
      : trace_(Trace::open(directory.path())) {
    for (const RankFile& file : trace_.steps().at(0).ranks) {
      for (const Record& record : file.records()) {
        if (to_string(record.id) == id) {
          shards_.push_back({file.layout().rank, &record, file.bytes(record)});
        }
      }
    }
    result_ = merge(shards_);
  }

  [[nodiscard]] const MergeResult& result() const { return result_; }
  [[nodiscard]] at::Tensor tensor() const {
    at::Tensor values =
        at::empty(result_.shape, at::TensorOptions().dtype(scalar_type(result_.type)));
    std::memcpy(values.mutable_data_ptr(), result_.bytes.data(), result_.bytes.size());
    return values;
  }

 private:
  Trace trace_;
  std::vector<Shard> shards_;
  MergeResult result_;
};

// --- flat shards -------------------------------------------------------------------------------

struct OneLinear : Holder {
  torch::nn::Linear fc = add("fc", torch::nn::Linear(3, 4));  // weight [4, 3], bias [4]
  OneLinear() { fill_all(*this); }
};

TEST(FlatShards, BucketsThatCutParametersAnywhereMergeToParameters) {
  const TemporaryDirectory directory;
  const at::Tensor weight = random_tensor({4, 3}, 1);
  const at::Tensor bias = random_tensor({4}, 2);
  const at::Tensor bucket = at::cat({weight.flatten(), bias});  // [16], rank 0 has 10 of them
  for (int rank = 0; rank < 2; ++rank) {
    OneLinear model;
    Layout layout{rank, 2, {}};
    layout.add("dp", 2, rank);
    trace_rank(directory, model, layout, {}, [&](Step& step) {
      const at::Tensor shard = rank == 0 ? bucket.narrow(0, 0, 10) : bucket.narrow(0, 10, 6);
      std::vector<NamedTensor> gradients;
      std::vector<OptimizerEntry> entries;
      const auto hand_over = [&](const std::string& path, const at::Tensor& part, int first) {
        gradients.push_back({path, part, first});
        entries.push_back({path, part - 1, part + 1, part + 2, part + 3, first});
      };
      if (rank == 0) {
        hand_over("fc.weight", shard, 0);
        hand_over("fc.bias", shard.narrow(0, 0, 0), 0);  // nothing of it
      } else {
        hand_over("fc.weight", shard.narrow(0, 0, 2), 10);
        hand_over("fc.bias", shard.narrow(0, 2, 4), 0);
      }
      entries.back().param = model.fc->bias;  // all of it, next to flat shards of the rest
      step.gradients_reduced(gradients);
      step.parameters_updated(entries);
    });
  }
  const Merged gradient(directory, "s0/main_grad/fc.weight/0");
  EXPECT_TRUE(gradient.result().findings.empty());
  EXPECT_SAME(gradient.tensor(), weight);
  EXPECT_SAME(Merged(directory, "s0/main_grad/fc.bias/0").tensor(), bias);
  EXPECT_SAME(Merged(directory, "s0/master/fc.weight/0").tensor(), weight + 1);
  EXPECT_SAME(Merged(directory, "s0/exp_avg/fc.weight/0").tensor(), weight + 2);
  EXPECT_SAME(Merged(directory, "s0/exp_avg_sq/fc.bias/0").tensor(), bias + 3);
  EXPECT_THAT(Merged(directory, "s0/param_next/fc.bias/0").result().shape, ElementsAre(4));
  EXPECT_SAME(Merged(directory, "s0/param_next/fc.weight/0").tensor(), weight - 1);
}

TEST(FlatShards, ParameterThatIsStillBeingGatheredIsRecordedWhenItIsThere) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  {
    OneLinear model;
    auto session = Session::from_environment();
    session.attach(model, Layout(), {});
    auto step = session.step(0, {.gathered_later = {"fc.weight"}});
    const at::NoGradGuard no_grad;
    model.fc->weight.fill_(2);
    step.parameters_gathered({"fc.weight", "fc.bias"});
    model.fc->weight.fill_(3);
    model.fc->bias.fill_(3);
    step.parameters_gathered({"fc.weight", "fc.bias"});
  }
  OneLinear start;
  EXPECT_SAME(Merged(directory, "s0/param/fc.weight/0").tensor(), at::full({4, 3}, 2.0F));
  EXPECT_SAME(Merged(directory, "s0/param/fc.bias/0").tensor(), start.fc->bias.detach());
}

TEST(FlatShards, ParameterToBeGatheredMustBeAttached) {
  const TemporaryDirectory directory;
  auto variables = reference_pass(directory.path());
  variables["TTRACE_ON_ERROR"] = "raise";
  const PassEnvironment environment(variables);
  const OneLinear model;
  auto session = Session::from_environment();
  session.attach(model, Layout(), {});
  auto step = session.step(0, {.gathered_later = {"fc.wait"}});
  EXPECT_THROW(step.parameters_gathered({}), UsageError);
}

TEST(FlatShards, RangesAreThoseOfTheTensorParallelShard) {
  const TemporaryDirectory directory;
  const at::Tensor weight = random_tensor({8, 3}, 1);  // [4, 3] on each of two tp ranks
  const Annotations annotations = annotated("fc.weight", "f[tp] h");
  for (int rank = 0; rank < 4; ++rank) {
    OneLinear model;
    Layout layout{rank, 4, {}};
    layout.add("tp", 2, rank % 2);
    layout.add("dp", 2, rank / 2);
    trace_rank(directory, model, layout, annotations, [&](Step& step) {
      const at::Tensor local = weight.narrow(0, rank % 2 * 4, 4).flatten();
      const int border = rank % 2 == 0 ? 5 : 8;
      if (rank < 2) {
        step.gradients_reduced({{"fc.weight", local.narrow(0, 0, border), 0}});
      } else {
        step.gradients_reduced({{"fc.weight", local.narrow(0, border, 12 - border), border}});
      }
    });
  }
  const Merged gradient(directory, "s0/main_grad/fc.weight/0");
  EXPECT_TRUE(gradient.result().findings.empty());
  EXPECT_SAME(gradient.tensor(), weight);
}

// The error that a step with these gradients raises at the next call.
std::string error_of(const std::vector<NamedTensor>& gradients) {
  const TemporaryDirectory directory;
  const OneLinear model;
  try {
    trace_rank(directory, model, Layout(), {}, [&](Step& step) {
      step.gradients_reduced(gradients);
      step.scalar("grad_norm", 1.0);
    });
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(FlatShards, WhatCannotBeIsRefusedWithItsName) {
  EXPECT_THAT(error_of({{"fc.weight", random_tensor({5}), 8}}),
              ::testing::AllOf(HasSubstr("s0/main_grad/fc.weight/0 exceeds its parameter"),
                               HasSubstr("5 elements from element 8"),
                               HasSubstr("of 12")));
  EXPECT_THAT(error_of({{"fc.weight", random_tensor({2, 3}), 0}}),
              HasSubstr("is a flat shard with 2 dimensions"));
  EXPECT_THAT(error_of({{"fc.wait", random_tensor({2}), 0}}), HasSubstr("was not attached"));
  EXPECT_EQ(error_of({{"fc.weight", random_tensor({4}), 8}}), "");
}

TEST(FlatShards, ParametersAreAttachedAndFilledWhole) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(reference_pass(directory.path()));
  auto session = Session::from_environment();
  const std::vector<NamedTensor> parameters{{"fc.weight", random_tensor({4}), 0}};
  EXPECT_THROW(session.attach(parameters, {}, Layout(), {}), UsageError);
  EXPECT_THROW(fill_parameters(parameters, Layout(), {}, 1), UsageError);
}

// --- rows --------------------------------------------------------------------------------------

TEST(RowsOfAScope, OutputAndGradientLieWhereTheRowsSay) {
  Holder root;
  const Annotations annotations = annotated("expert", "t h");
  const at::Tensor x = random_tensor({3, 2}).requires_grad_();
  const Captured captured = trace_microbatch(
      root,
      [&] {
        Scope scope(root, "expert");
        const Rows rows{.index = {4, 0, 1}, .size = 6};
        const at::Tensor y = scope.out(scope.in(x, rows) * 2, rows);
        (y * at::arange(1.0F, 7.0F, at::kFloat).view({3, 2})).sum().backward();
      },
      annotations);
  for (const char* id : {"s0/m0/input/expert/0",
                         "s0/m0/output/expert/0",
                         "s0/m0/grad_input/expert/0",
                         "s0/m0/grad_output/expert/0"}) {
    EXPECT_EQ(to_string(captured.record(id).placement), "6/3?:0+4+1,1+0+2 2") << id;
  }
  EXPECT_SAME(captured.tensor("s0/m0/output/expert/0"), (x * 2).detach());
}

TEST(RowsOfAScope, OtherDimensionsFollowTheAnnotation) {
  const TemporaryDirectory directory;
  const Annotations annotations = annotated("expert", "t h[etp]");
  const at::Tensor whole_rows = random_tensor({3, 4});  // rows 5, 1, 2 of 6
  for (int rank = 0; rank < 2; ++rank) {
    Holder root;
    Layout layout{rank, 2, {}};
    layout.add("etp", 2, rank);
    trace_rank(directory, root, layout, annotations, [&](Step& step) {
      const auto microbatch = step.microbatch(0);
      Scope scope(root, "expert");
      static_cast<void>(
          scope.out(whole_rows.narrow(1, 2 * rank, 2), {.index = {5, 1, 2}, .size = 6}));
    });
  }
  const Merged output(directory, "s0/m0/output/expert/0");
  EXPECT_TRUE(output.result().findings.empty());
  at::Tensor expected = at::zeros({6, 4});
  expected.index_copy_(0, at::tensor({5, 1, 2}, at::kLong), whole_rows);
  EXPECT_SAME(output.tensor(), expected);
  EXPECT_EQ(output.result().held->rows, (IndexSet{{1, 3}, {5, 6}}));
}

TEST(RowsOfAScope, PackedSequencesAreAnIndexMapWithoutGaps) {
  Holder root;
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(root, "attention");
    static_cast<void>(scope.out(random_tensor({2, 4, 3}),
                                {.index = {7, 0, 1, -1}, .size = 8, .dim = 1, .sparse = false}));
  });
  EXPECT_EQ(to_string(captured.record("s0/m0/output/attention/0").placement),
            "2 8/4:0+7+1,1+0+2 3");
}

TEST(RowsOfAScope, TokensOfSeveralMicrobatchesAreOneRecordEach) {
  Holder root;
  const at::Tensor x = random_tensor({4, 2}).requires_grad_();
  const at::Tensor weight = random_tensor({4, 2}, 9);
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(3);
    Scope scope(root, "expert");
    const at::Tensor y = scope.out(
        x * 2,
        {.index = {1, 4, -1, 0}, .size = 5, .microbatch = {3, 2, 2, 3}, .microbatches = {2, 3, 4}});
    (y * weight).sum().backward();
  });
  const auto rows = [](const at::Tensor& all, std::vector<std::int64_t> of) {
    return all.index_select(0, at::tensor(of, at::kLong));
  };
  EXPECT_SAME(captured.tensor("s0/m2/output/expert/0"), rows(x.detach() * 2, {1}));
  EXPECT_SAME(captured.tensor("s0/m3/output/expert/0"), rows(x.detach() * 2, {0, 3}));
  EXPECT_SAME(captured.tensor("s0/m3/grad_output/expert/0"), rows(weight, {0, 3}));
  EXPECT_EQ(to_string(captured.record("s0/m3/grad_output/expert/0").placement),
            "5/2?:0+1+1,1+0+1 2");
  EXPECT_EQ(to_string(captured.record("s0/m4/output/expert/0").placement), "5/0?: 2");
  EXPECT_EQ(to_string(captured.record("s0/m4/grad_output/expert/0").placement), "5/0?: 2");
}

// Symptom: an expert's activation in micro-batch 1 was said to take its linear's result in 0.
TEST(RowsOfAScope, WhatTheyAreTakenFromIsOfTheSameMicrobatch) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(3);
    const Rows rows{.index = {1, 4, 0}, .size = 5, .microbatch = {3, 2, 3}, .microbatches = {2, 3}};
    at::Tensor x;
    {
      Scope scope(root, "linear");
      x = scope.out(random_tensor({3, 2}), rows);
    }
    Scope scope(root, "activation");
    static_cast<void>(scope.in(x, rows));
  });
  EXPECT_THAT(captured.edges(),
              ElementsAre("s0/m2/input/activation/0 <- s0/m2/output/linear/0",
                          "s0/m3/input/activation/0 <- s0/m3/output/linear/0"));
}

TEST(RowsOfAScope, GradientOfAnInPlaceAdditionToAViewKeepsItsRows) {
  Holder root;
  const at::Tensor x = random_tensor({6, 4}).requires_grad_();
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor base = x * 2;
    at::Tensor view = base.view({3, 8});
    Scope scope(root, "expert");
    view = scope.out(view, {.index = {2, 0, 3}, .size = 4});
    view.add_(1);
    (view * 5).sum().backward();
  });
  EXPECT_EQ(to_string(captured.record("s0/m0/grad_output/expert/0").placement),
            "4/3?:0+2+1,1+0+1,2+3+1 8");
}

TEST(RowsOfAScope, SamplesThatTheProgramPutBackStayWhereItSays) {
  const TemporaryDirectory directory;
  const auto run = [&](Step& step, const Holder& root) {
    auto microbatch = step.microbatch(0);
    const at::Tensor tokens = random_tensor({4, 2});
    const std::vector<std::int64_t> order = microbatch.permutation(4);
    Scope scope(root, "expert");
    static_cast<void>(scope.out(tokens.index_select(0, at::tensor(order, at::kLong)),
                                {.index = order, .size = 4}));
  };
  for (const bool noise : {false, true}) {
    const PassEnvironment environment(noise ? testing::noise_pass(directory.path(), 1)
                                            : reference_pass(directory.path()));
    const Holder root;
    auto session = Session::from_environment();
    session.attach(root, Layout(), {});
    auto step = session.step(0);
    run(step, root);
  }
  const auto passes = read_noise(directory.path());
  ASSERT_EQ(passes.size(), 1u);
  ASSERT_EQ(passes[0].rows.size(), 2u);  // the tokens, which the step draws, and the output
  for (const NoiseRow& row : passes[0].rows) {
    EXPECT_EQ(row.sum_squared, 0.0) << to_string(row.id);
  }
}

std::string error_of_rows(const Rows& rows) {
  const TemporaryDirectory directory;
  const Holder root;
  try {
    trace_rank(directory, root, Layout(), {}, [&](Step& step) {
      const auto microbatch = step.microbatch(0);
      Scope scope(root, "expert");
      static_cast<void>(scope.out(random_tensor({2, 3}), rows));
      step.scalar("loss", 1.0);
    });
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(RowsOfAScope, RowsThatCannotBeAreRefused) {
  EXPECT_EQ(error_of_rows({.index = {0, 1}, .size = 2}), "");
  EXPECT_THAT(error_of_rows({.index = {0}, .size = 2}), HasSubstr("has 1 entries"));
  EXPECT_THAT(error_of_rows({.index = {0, 1}, .size = 2, .dim = 2}),
              HasSubstr("the tensor has 2 dimensions"));
  EXPECT_THAT(error_of_rows({.index = {0, 2}, .size = 2}), HasSubstr("logical row 2 of 2"));
  EXPECT_THAT(error_of_rows({.index = {1, 1}, .size = 2}), HasSubstr("logical row 1"));
  EXPECT_THAT(error_of_rows({.index = {0, 1}, .size = 2, .microbatch = {0, 1}}),
              HasSubstr("Rows::microbatches is empty"));
  EXPECT_THAT(
      error_of_rows({.index = {0, 1}, .size = 2, .microbatch = {0, 1}, .microbatches = {0}}),
      HasSubstr("micro-batch 1"));
}

// --- operands ----------------------------------------------------------------------------------

// With sequence parallelism, a rank quantises its rows of the input, and the product takes those of
// all ranks. Of the weight and the gradient, a rank has the part that its outputs need; their dims
// follow from the weight and the output.
TEST(Operands, OfTensorAndSequenceParallelRanksMergeToWholeOnes) {
  const TemporaryDirectory directory;
  const at::Tensor input = random_tensor({4, 2, 3}, 1);     // [s, b, h]
  const at::Tensor weight = random_tensor({4, 3}, 2);       // [q, h]
  const at::Tensor gradient = random_tensor({4, 2, 4}, 3);  // [s, b, q]
  const Annotations annotations = Annotations::parse(R"(tensors:
  - path: fc.weight
    value: "q[tp] h"
  - path: fc
    inputs: "s[sp] b h"
    value: "s b q[tp]"
    operands: ["s b h"]
)");
  for (int rank = 0; rank < 2; ++rank) {
    OneLinear model;
    Layout layout{rank, 2, {}};
    layout.add("tp", 2, rank).add("sp", 2, rank, "tp");
    trace_rank(directory, model, layout, annotations, [&](Step& step) {
      auto microbatch = step.microbatch(0, {.gradient_scale = 0.5});
      Scope scope(*model.fc);
      scope.operand(input, 0);
      scope.operand(weight.narrow(0, 2 * rank, 2), 1);
      scope.operand(2.0 * gradient.narrow(2, 2 * rank, 2), 2);
    });
  }
  const Merged gathered(directory, "s0/m0/operand/fc/0");
  EXPECT_TRUE(gathered.result().findings.empty());
  EXPECT_SAME(gathered.tensor(), input);
  EXPECT_SAME(Merged(directory, "s0/m0/operand/fc/1").tensor(), weight);
  EXPECT_SAME(Merged(directory, "s0/m0/operand/fc/2").tensor(), gradient.to(at::kDouble));
}

}  // namespace
}  // namespace ttrace
