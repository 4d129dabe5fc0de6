#include "trace_fixture.h"

#include <numeric>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Show : public TraceCliTest {
 protected:
  // A 4 x 6 tensor of 0 ... 23 and a 40 x 50 one, whole.
  void add_tables() {
    std::vector<double> values(24);
    std::iota(values.begin(), values.end(), 0.0);
    reference_.add(0, {"s0/m0/output/table/0", values, ElementType::kF32, {4, 6}});
    reference_.add(
        0, {"s0/m0/output/large/0", std::vector<double>(2000, 0.25), ElementType::kF64, {40, 50}});
    write();
  }
  [[nodiscard]] ProcessResult show(const std::string& id,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"show", "reference", id};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ttrace(arguments);
  }
};

TEST_F(Show, TellsPlacementStatisticsAndValuesOfAShardedTensor) {
  write();
  const ProcessResult result = ttrace({"show", "candidate", "s0/m0/output/mlp.fc1/0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "s0/m0/output/mlp.fc1/0\n"
            "placement:\n"
            "  rank 0: bf16 4, holds [0:4]; record 1 of its rank\n"
            "  rank 1: bf16 4, holds [4:8]; record 1 of its rank\n"
            "statistics:\n"
            "                  norm     max |x|        mean     zeros  non-finite    elements\n"
            "  rank 0          5.48           4         2.5         0           0           4\n"
            "  rank 1          13.2           8         6.5         0           0           4\n"
            "  merged          14.3           8         4.5         0           0           8\n"
            "\n"
            "values of the merged tensor, bf16 8:\n"
            "[1 2 3 4 5 6 7 8]\n");
}

TEST_F(Show, AddendsAreSummedInTheMergedTensor) {
  write();
  const ProcessResult result = ttrace({"show", "candidate", "s0/main_grad/mlp.fc1.bias/0"});
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("rank 1: f32 2, holds [0:2], addend 1 of 2 over tp"), HasSubstr("[1 0]\n")));
}

TEST_F(Show, OneRanksOwnValues) {
  write();
  const ProcessResult result =
      ttrace({"show", "candidate", "s0/m0/output/mlp.fc1/0", "--rank", "1"});
  EXPECT_THAT(result.out, HasSubstr("values of rank 1, bf16 4:\n[5 6 7 8]\n"));
  const ProcessResult wrong =
      ttrace({"show", "candidate", "s0/m0/output/mlp.fc1/0", "--rank", "7"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("but ranks 0, 1 recorded s0/m0/output/mlp.fc1/0"));
}

TEST_F(Show, SlicesAreNumpys) {
  add_tables();
  const auto values = [this](const std::string& slice) {
    const ProcessResult result = show("s0/m0/output/table/0", {"--slice=" + slice});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(result.out.find(":\n", result.out.find("values of")) + 2);
  };
  EXPECT_EQ(values("0:2,1:4"), "[[1 2 3]\n [7 8 9]]\n");
  EXPECT_EQ(values("1"), "[ 6  7  8  9 10 11]\n");
  EXPECT_EQ(values(":,-1"), "[ 5 11 17 23]\n");
  EXPECT_EQ(values("-2:,::2"), "[[12 14 16]\n [18 20 22]]\n");
  EXPECT_EQ(values("3, 5"), "23\n");
  EXPECT_EQ(values("2:99,0:1"), "[[12]\n [18]]\n");
  EXPECT_EQ(values("3:1"), "[]\n");
}

TEST_F(Show, LongTensorsAreShortened) {
  add_tables();
  const ProcessResult result = show("s0/m0/output/large/0");
  EXPECT_THAT(result.out, HasSubstr("[[0.25 0.25 0.25 ... 0.25 0.25 0.25]\n"));
  EXPECT_THAT(result.out, HasSubstr("]\n ...\n ["));
  const ProcessResult all = show("s0/m0/output/large/0", {"--threshold", "2000"});
  EXPECT_THAT(all.out, Not(HasSubstr("...")));
}

TEST_F(Show, UnknownIdSuggestsTheNearest) {
  write();
  const ProcessResult result = ttrace({"show", "candidate", "s0/m0/output/mlp.fc2/0"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              HasSubstr("there is no tensor 's0/m0/output/mlp.fc2/0' in candidate; the nearest are "
                        "s0/m0/output/mlp.fc1/0, "));
}

TEST_F(Show, BadSlicesAreRefusedBeforeAnythingIsPrinted) {
  add_tables();
  for (const auto& [slice, message] : std::vector<std::pair<std::string, std::string>>{
           {"a", "'a' is neither a number nor FIRST:LAST"},
           {"4", "index 4 lies outside a dimension of 4"},
           {"0,0,0", "but the tensor has only 2 dimensions"},
           {"::0", "a STEP of at least 1"},
           {"::-1", "a STEP of at least 1"},
           {"0:1:1:1", "a STEP of at least 1"}}) {
    const ProcessResult result = show("s0/m0/output/table/0", {"--slice=" + slice});
    EXPECT_EQ(result.exit_code, 2) << slice;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(Show, PartsThatDoNotFitAreShownWithTheReason) {
  candidate_.add(0, {"s0/m0/output/torn/0", {1, 2}, ElementType::kF32, {2}, part(4, 0, 2)});
  write();
  const ProcessResult result = ttrace({"show", "candidate", "s0/m0/output/torn/0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("no rank holds [2:4]"), HasSubstr("There are no merged values")));
  EXPECT_THAT(ttrace({"show", "candidate", "s0/m0/output/torn/0", "--rank", "0"}).out,
              HasSubstr("[1 2]\n"));
}

TEST_F(Show, NonFiniteValuesAreCountedAndPrinted) {
  reference_.add(0, {"s0/m0/output/bad/0", {1, NAN, -INFINITY, 0}});
  write();
  EXPECT_THAT(show("s0/m0/output/bad/0").out, HasSubstr("[   1  nan -inf    0]\n"));
}

}  // namespace
}  // namespace ttrace::testing
