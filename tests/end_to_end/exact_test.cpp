// Checks that must hold in every bit within a run: clean traces of real runs, and copies with one
// damaged record.
#include "end_to_end/small_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

struct Spoilt {
  std::string name;
  int rank;
  std::string id;
  std::vector<std::string> sentence;  // parts of it
};

// Ranks 0 and 1 are the first stage's, 2 and 3 the second's.
const std::vector<Spoilt> kSpoilt = {
    {"message",
     2,
     "s0/m0/received/decoder.layers.0/0",
     {"elements that ranks 2, 3 received differ from what ranks 0, 1 sent"}},
    {"tied",
     3,
     "s0/main_grad/embedding.word_embeddings.weight/0",
     {"rank 1 and rank 3 hold different values"}},
    {"recomputed",
     0,
     "s0/m0/output/decoder.layers.0/0~",
     {"of the recomputed value differ from the first forward"}},
    {"replica",
     1,
     "s0/main_grad/decoder.layers.0.input_layernorm.weight/0",
     {"rank 0 and rank 1 hold different values in [0:32]"}},
    {"sum",
     1,
     "s0/collective_output/tp-0.1/0",
     {"all-gather number 1 of group tp-0 in decoder.layers.0.self_attention.linear_qkv",
      "do not follow from the inputs"}}};

TEST(ExactChecks, NameWhatWasSpoiltInAnOtherwiseCleanRun) {
  const SmallRun run({{"model.tied", "true"}}, "f32");
  const ProcessResult clean =
      run.check("clean", "--tp 2 --sp --pp 2 --recompute full", {"--collectives"});
  ASSERT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  for (const auto& spoilt : kSpoilt) {
    SCOPED_TRACE(spoilt.name);
    copy_with(change_signs,
              spoilt.rank,
              spoilt.id,
              run.folder("clean") + "/candidate",
              run.folder(spoilt.name));
    const ProcessResult result = ttrace_program(
        {"diff", run.folder("clean") + "/reference", run.folder(spoilt.name), "--details"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.out, HasSubstr("\n  id         " + spoilt.id + "\n"));
    for (const auto& part : spoilt.sentence) {
      EXPECT_THAT(result.out, HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace ttrace::testing
