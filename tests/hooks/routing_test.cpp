// Choices of experts: what is recorded, and who follows whose.
#include "hooks/training.h"
#include "trace/file/noise_table.h"
#include "trace/merge/draws.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace ttrace {
namespace {

using testing::candidate_pass;
using testing::Captured;
using ::testing::ElementsAre;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using testing::noise_pass;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::step0;
using testing::TemporaryDirectory;
using testing::Variables;
using testing::with;

constexpr std::int64_t kTokens = 4;   // s
constexpr std::int64_t kSamples = 6;  // b
const char* const kChoices = "s0/m0/routing/router/0";
const char* const kMargins = "s0/m0/routing/router/1";

// Two of five experts per token, by the scores of a linear module.
class RoutingTest : public ::testing::Test {
 protected:
  RoutingTest() { fill_all(root_); }

  struct Routed {
    at::Tensor own;   // [s, b, 2]
    at::Tensor used;  // [s, b, 2]
    at::Tensor margins;
  };

  // `scores` [s, b, 5]
  Routed route(const at::Tensor& scores) {
    const auto [best, experts] = scores.topk(3, -1);
    Routed result;
    result.own = experts.narrow(-1, 0, 2).contiguous();
    result.margins = best.select(-1, 1) - best.select(-1, 2);
    Scope scope(root_, "router");
    result.used = scope.routing(result.own, result.margins);
    return result;
  }

  // One traced micro-batch in which the tokens `first` to `first + count` of the sequence are
  // routed; `scores` are those of all tokens.
  Routed run(const Variables& variables,
             const at::Tensor& scores,
             const Layout& layout = {},
             const std::string& dims = "[\"s[cp] b k\", \"s[cp] b\"]") {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    auto session = Session::from_environment();
    session.attach(root_,
                   layout,
                   Annotations::parse("tensors:\n  - path: router\n    routing: " + dims + "\n"));
    Routed result;
    {
      auto step = session.step(0);
      auto microbatch = step.microbatch(0);
      order_ = at::tensor(microbatch.permutation(kSamples), at::kLong);
      const std::int64_t count = kTokens / std::max(1, layout.world_size);
      result = route(scores.index_select(1, order_).narrow(0, layout.rank * count, count));
      step.scalar("done", 1.0);  // where an error inside routing() is thrown
    }
    return result;
  }

  Holder root_;
  torch::nn::Linear fc_ = root_.add("fc", torch::nn::Linear(5, 5));
  at::Tensor reference_scores_ = random_tensor({kTokens, kSamples, 5}, 1);
  at::Tensor candidate_scores_ = random_tensor({kTokens, kSamples, 5}, 2);
  at::Tensor order_;
  TemporaryDirectory reference_;
  TemporaryDirectory candidate_;
  TemporaryDirectory forced_;
};

TEST_F(RoutingTest, ChoicesAndMarginsAreRecordedAndHandedOn) {
  const Routed routed = run(reference_pass(reference_.path()), reference_scores_);
  EXPECT_SAME(routed.used, routed.own);
  const Captured captured(step0(reference_));
  EXPECT_THAT(captured.ids_with("/m0/"), ElementsAre(kChoices, kMargins));
  EXPECT_SAME(captured.tensor(kChoices), routed.own);
  EXPECT_SAME(captured.tensor(kMargins), routed.margins);
  EXPECT_EQ(read_manifest(reference_.path()).forced_routing, "");
}

TEST_F(RoutingTest, ReferenceFollowsTheRanksOfACandidateAndRecordsItsOwnChoices) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < 2; ++rank) {
    Layout layout{.rank = rank, .world_size = 2, .axes = {}};
    layout.add("cp", 2, rank);
    parts.push_back(run(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"),
                        candidate_scores_,
                        layout)
                        .used);
  }
  const Routed routed =
      run(with(reference_pass(forced_.path()), "TTRACE_CANDIDATE", candidate_.path()),
          reference_scores_);
  EXPECT_FALSE(at::equal(routed.used, routed.own));
  EXPECT_SAME(routed.used, at::cat(parts, 0));
  EXPECT_SAME(Captured(step0(forced_)).tensor(kChoices), routed.own);
  const std::string digest = digest_of_choices(Trace::open(candidate_.path()));
  EXPECT_EQ(digest.size(), 16U);
  EXPECT_EQ(read_manifest(forced_.path()).forced_routing, digest);
}

TEST_F(RoutingTest, NoisePassFollowsItsReferenceSampleBySample) {
  const Routed reference = run(reference_pass(reference_.path()), reference_scores_);
  const Routed noise = run(noise_pass(reference_.path(), 1), candidate_scores_);
  EXPECT_FALSE(at::equal(order_, at::arange(kSamples)));
  EXPECT_SAME(noise.used, reference.own.index_select(1, order_));
}

TEST_F(RoutingTest, NoisePassOfAForcedReferenceFollowsTheCandidate) {
  const Routed candidate =
      run(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"), candidate_scores_);
  run(with(reference_pass(forced_.path()), "TTRACE_CANDIDATE", candidate_.path()),
      reference_scores_);
  const Routed noise =
      run(with(noise_pass(forced_.path(), 1), "TTRACE_CANDIDATE", candidate_.path()),
          reference_scores_);
  EXPECT_SAME(noise.used, candidate.own.index_select(1, order_));
  try {
    run(noise_pass(forced_.path(), 2), reference_scores_);
    FAIL() << "a noise pass followed the reference's own choices";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("give a noise pass the TTRACE_CANDIDATE"));
  }
}

TEST_F(RoutingTest, SamplesThatCannotBePutBackAreAnError) {
  run(reference_pass(reference_.path()), reference_scores_);
  try {
    run(noise_pass(reference_.path(), 1), reference_scores_, {}, "[\"s x k\", \"s x\"]");
    FAIL() << "choices of other samples were followed";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("annotate its `routing` with a dimension b"));
  }
}

TEST_F(RoutingTest, CandidateThatLacksARouterIsNamed) {
  run(with(with(candidate_pass(candidate_.path(), ""), "TTRACE_START", "own"),
           "TTRACE_FILTER",
           "nothing"),
      candidate_scores_);
  try {
    run(with(reference_pass(forced_.path()), "TTRACE_CANDIDATE", candidate_.path()),
        reference_scores_);
    FAIL() << "the reference followed nothing";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr(candidate_.path()));
    EXPECT_THAT(error.message(), HasSubstr(kChoices));
  }
}

TEST_F(RoutingTest, CandidateFollowsNobody) {
  const PassEnvironment environment(
      with(candidate_pass(candidate_.path(), ""), "TTRACE_CANDIDATE", "elsewhere"));
  EXPECT_THROW(Session::from_environment(), UsageError);
}

}  // namespace
}  // namespace ttrace
