#include "trace_fixture.h"

#include <ttrace/annotations.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The traces of the fixture and a tensor with gate and up rows on each rank.
class Infer : public TraceCliTest {
 protected:
  void add_gated(int outer) {
    const std::vector<double> values = wavy(32);
    reference_.add(0, {"s0/m0/output/mlp.gated/0", values, ElementType::kF32, {8, 4}});
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<double> local;
      for (const int row : {2 * rank, 2 * rank + 1, 4 + 2 * rank, 5 + 2 * rank}) {
        local.insert(local.end(), values.begin() + 4 * row, values.begin() + 4 * row + 4);
      }
      Layout layout{rank, 2, {}};
      layout.add("tp", 2, rank);
      const std::vector<std::int64_t> shape{4, 4};
      const DimsSpec dims = parse_dims("(" + std::to_string(outer) + "*f[tp]) h");
      candidate_.add(rank,
                     {"s0/m0/output/mlp.gated/0",
                      local,
                      ElementType::kF32,
                      shape,
                      place(dims, shape, layout)});
    }
    write();
  }
};

TEST_F(Infer, RightDeclarationsAreExitCodeZero) {
  add_gated(2);
  const ProcessResult result = ttrace({"infer", "reference", "candidate"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("4 tensors: "),
            HasSubstr("mlp.gated     value  (2*a[tp]) c    1 of 1\n"),
            HasSubstr(
                "mlp.fc1.bias  value  a[tp:partial]  1 of 1; equally good: 1 other placement\n"),
            HasSubstr("no declared placement contradicts the bytes; 4 of 4")));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Infer, WrongDeclarationIsNamedAndExitCodeOne) {
  add_gated(1);
  const ProcessResult result = ttrace({"infer", "reference", "candidate"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              HasSubstr("the bytes contradict the declared placements of 1 class of tensors:\n"
                        "s0/m0/output/mlp.gated/0\n"
                        "  declared \"a[tp] c\": relative error "));
  EXPECT_THAT(result.out,
              HasSubstr("  the bytes say \"(2*a[tp]) c\": relative error 0, on ranks 0, 1\n"));
}

TEST_F(Infer, JsonHasEveryTensorWithBothPlacements) {
  add_gated(1);
  const ProcessResult result = ttrace({"infer", "reference", "candidate", "--format", "json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["counts"]["tensors"], 4);
  EXPECT_EQ(json["counts"]["agreeing"], 3);
  EXPECT_EQ(json["contradictions"][0]["ids"][0], "s0/m0/output/mlp.gated/0");
  for (const auto& tensor : json["tensors"]) {
    EXPECT_EQ(tensor["inferred"].size(), 2U);
    EXPECT_EQ(tensor["declared"].size(), 2U);
    if (tensor["id"] == "s0/m0/output/mlp.gated/0") {
      EXPECT_EQ(tensor["dims"], "(2*a[tp]) c");
      EXPECT_EQ(tensor["declared"][1], "8/4:0+4+4 4");
      EXPECT_EQ(tensor["inferred"][1], "8/4:0+2+2,2+6+2 4");
      EXPECT_FALSE(tensor["agrees"]);
      EXPECT_TRUE(tensor["contradicted"]);
    }
  }
}

TEST_F(Infer, FileIsWrittenInOneGoAndCanBeLoaded) {
  add_gated(1);
  std::ofstream(folder_ / "found.yaml") << "old";
  EXPECT_EQ(ttrace({"infer", "reference", "candidate", "-o", "found.yaml"}).exit_code, 1);
  const Annotations annotations = Annotations::load(folder_ / "found.yaml");
  EXPECT_EQ(to_string(*annotations.find(Kind::kOutput, "mlp.gated")), "(2*a[tp]) c");
  EXPECT_EQ(to_string(*annotations.find(Kind::kMainGrad, "mlp.fc1.bias")), "a[tp:partial]");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "found.yaml.tmp"));
}

TEST_F(Infer, FileThatCannotBeWrittenIsExitCodeTwo) {
  add_gated(2);
  const ProcessResult result =
      ttrace({"infer", "reference", "candidate", "-o", "no/such/found.yaml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write no/such/found.yaml.tmp: No such file"));
}

TEST_F(Infer, SelectionDecidesWhatIsLookedAt) {
  add_gated(1);
  const ProcessResult result = ttrace({"infer", "reference", "candidate", "--exclude", "gated"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, Not(HasSubstr("mlp.gated")));
  const ProcessResult nothing = ttrace({"infer", "reference", "candidate", "--filter", "fc9"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("have no tensor in common that could be placed"));
}

TEST_F(Infer, ThreadsDoNotChangeAByte) {
  add_gated(1);
  EXPECT_EQ(ttrace({"infer", "reference", "candidate", "--threads", "1"}).out,
            ttrace({"infer", "reference", "candidate", "--threads", "3"}).out);
}

TEST_F(Infer, FolderOfACheckHasBothTraces) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2"))).exit_code, 0);
  const ProcessResult result = ttrace({"infer", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no declared placement contradicts the bytes"));
}

TEST_F(Infer, BadUsageIsExitCodeTwo) {
  EXPECT_EQ(ttrace({"infer"}).exit_code, 2);
  EXPECT_EQ(ttrace({"infer", "here", "there"}).exit_code, 2);
  EXPECT_EQ(ttrace({"infer", "--outptu", "x"}).exit_code, 2);
}

}  // namespace
}  // namespace ttrace::testing
