// Mixtures of experts end to end: tokens that go where round-off sends them, and where bugs do.
#include "end_to_end/small_run.h"
#include "fuzz_layouts/judge.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <ttrace/collective_call.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ConfigChanges kExperts = {{"model.experts", "4"}, {"model.top_k", "2"}};

// The outputs of all-to-alls of floating-point rows in which `rank` sends the others unequal parts.
std::vector<std::string> uneven_exchanges(const std::string& trace, int rank) {
  const RankFile file(step_file(trace, 0, rank));
  std::set<std::string> uneven;
  std::vector<std::string> found;
  for (const Record& record : file.records()) {
    const auto bytes = file.bytes(record);
    if (record.id.kind == Kind::kCollectiveInput && record.id.slot == kCollectiveCallSlot) {
      const CollectiveCall call = parse_collective_call(
          std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      if (call.operation == CollectiveOperation::kAllToAll &&
          call.rows_sent.front() != call.rows_sent.back()) {
        uneven.insert(record.id.path);
      }
    } else if (record.id.kind == Kind::kCollectiveOutput && record.type == ElementType::kF64 &&
               uneven.contains(record.id.path)) {
      found.push_back(to_string(record.id));
    }
  }
  return found;
}

TEST(Experts, InFp64AllTensorsAgreeAndAWrongAllToAllIsNamed) {
  const SmallRun run(kExperts, "f64");
  const ProcessResult clean = run.check("clean", "--tp 2 --sp --ep 2 --etp 1", {"--collectives"});
  ASSERT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  const nlohmann::json report = run.report("clean");
  EXPECT_LE(fuzz_layouts::largest_distance(report["tensors"]).value, 1e-12);
  EXPECT_EQ(report["routing"]["flips"], 0);

  const std::string candidate = run.folder("clean") + "/candidate";
  const std::vector<std::string> exchanges = uneven_exchanges(candidate, 1);
  ASSERT_FALSE(exchanges.empty());
  for (const auto& id : exchanges) {
    const auto judged = std::find_if(report["tensors"].begin(),
                                     report["tensors"].end(),
                                     [&](const nlohmann::json& it) { return it["id"] == id; });
    ASSERT_NE(judged, report["tensors"].end()) << id;
    EXPECT_EQ((*judged)["status"], "within");
  }
  copy_with(change_signs, 1, exchanges.front(), candidate, run.folder("wrong"));
  const ProcessResult wrong = ttrace_program(
      {"diff", run.folder("clean") + "/reference", run.folder("wrong"), "--details"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  EXPECT_THAT(wrong.out,
              AllOf(HasSubstr("\n  id         " + exchanges.front() + "\n"),
                    HasSubstr("why        all-to-all number "),
                    HasSubstr(" in decoder.layers.0.mlp: "),
                    HasSubstr(" elements on rank 1 do not follow from the inputs")));
}

// So many tokens that some choices nearly tie.
TEST(Experts, InBf16LegalFlipsAreFollowedAndIllegalOnesNamed) {
  ConfigChanges many = kExperts;
  many["data.micro_batch_size"] = "8";
  many["data.micro_batches"] = "4";
  many["model.sequence"] = "64";
  const SmallRun run(many, "bf16");

  // Ranks of dp are at different micro-batches while they share experts.
  const std::string layout = "--dp 2 --ep 2";
  const ProcessResult legal = run.check("legal", layout);
  EXPECT_EQ(legal.exit_code, 0) << legal.out << legal.err;
  const nlohmann::json report = run.report("legal");
  EXPECT_EQ(report["verdict"], "clean");
  EXPECT_GT(report["routing"]["flips"], 0);
  EXPECT_EQ(report["routing"]["illegal"], 0);
  EXPECT_GT(report["counts"]["allowed_missing"], 0);
  EXPECT_THAT(legal.out,
              AllOf(HasSubstr("the reference used the candidate's choices"),
                    HasSubstr("its program declares that it cannot record"),
                    Not(HasSubstr("missing in the candidate\n"))));

  // As a trace that check did not make.
  std::filesystem::remove(run.folder("legal") + "/reference/command.json");
  const ProcessResult undecided = run.check_again("undecided", layout, "legal");
  EXPECT_EQ(undecided.exit_code, 2) << undecided.out;
  EXPECT_THAT(
      undecided.out,
      AllOf(HasSubstr("UNDECIDED"), HasSubstr("or with a stored one and --rerun COMMAND\n")));
  EXPECT_THAT(undecided.err, HasSubstr("pass --rerun COMMAND"));
  EXPECT_GT(run.report("undecided")["counts"]["behind_flip"], 0);

  // Rank 0 has the first micro-batch.
  const std::string router = "s0/m0/routing/decoder.layers.0.mlp.router/0";
  copy_with(change_experts, 0, router, run.folder("legal") + "/candidate", run.folder("illegal"));
  const ProcessResult illegal = ttrace_program(
      {"diff", run.folder("legal") + "/reference", run.folder("illegal"), "--details"});
  EXPECT_EQ(illegal.exit_code, 1) << illegal.err;
  EXPECT_THAT(
      illegal.out,
      AllOf(
          HasSubstr("\n  id         " + router + "\n"),
          HasSubstr(
              " tokens go to other experts than in the reference; round-off cannot explain this")));

  const ProcessResult apart =
      run.check_again("apart", "--tp 2 --bug ranks-route-differently", "legal");
  EXPECT_EQ(apart.exit_code, 1) << apart.out << apart.err;
  EXPECT_THAT(
      apart.out,
      AllOf(HasSubstr("DIVERGED  decoder.layers.1.mlp.router: output, step 0, micro-batch 0\n"),
            HasSubstr("rank 0 and rank 1 hold different values")));
}

}  // namespace
}  // namespace ttrace::testing
