// References that use the candidate's choices of experts.
#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using CheckRouting = CliTest;

const char* const kReference = "--route 0,1,2,3";
const char* const kFlipped = "--ranks 2 --route 0,1,2,5";

TEST_F(CheckRouting, EqualChoicesNeedNoSecondReference) {
  const ProcessResult result =
      ttrace(check(trainer(kReference), trainer("--ranks 2 --route 0,1,2,3")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/rerouted"));
  EXPECT_THAT(result.out, HasSubstr("experts    0 of 4 tokens go to other experts"));
}

TEST_F(CheckRouting, ReferenceGoesOnWithALegalFlip) {
  const ProcessResult result = ttrace(check(trainer(kReference), trainer(kFlipped)));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* name : {"rerouted/step000000/rank00000.h5",
                           "rerouted/noise/00001.h5",
                           "logs/rerouted-reference.log",
                           "logs/rerouted-noise-1.log"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("run/" + std::string(name)))) << name;
  }
  // Symptom: noise passes ran twice, and those of the reference that does not judge were for
  // nothing.
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/reference/noise"));
  const auto json = nlohmann::json::parse(file("run/report.json"));
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_EQ(json["routing"]["flips"], 1);
  EXPECT_EQ(json["routing"]["illegal"], 0);
  EXPECT_THAT(result.out, HasSubstr("the reference used the candidate's choices"));
}

TEST_F(CheckRouting, AnIllegalFlipIsTheFirstDivergence) {
  const ProcessResult result =
      ttrace(check(trainer(kReference), trainer(std::string(kFlipped) + " --margin 0.5")));
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr(
                "DIVERGED  decoder.layers.0.mlp.router: choice of experts, step 0, micro-batch 0"),
            HasSubstr("1 of 4 tokens goes to other experts")));
}

TEST_F(CheckRouting, StoredReferenceNeedsItsCommandToGoOn) {
  ASSERT_EQ(ttrace(check(trainer(kReference), trainer(kReference))).exit_code, 0);
  std::filesystem::remove(folder_ / "run/reference/command.json");
  const ProcessResult without = ttrace(
      {"check", "--reference", "run/reference", "--candidate", trainer(kFlipped), "-o", "second"});
  EXPECT_EQ(without.exit_code, 2) << without.out;
  EXPECT_THAT(without.err, HasSubstr("pass --rerun COMMAND"));
  EXPECT_THAT(without.out, HasSubstr("UNDECIDED"));
  const ProcessResult with = ttrace({"check",
                                     "--reference",
                                     "run/reference",
                                     "--rerun",
                                     trainer(kReference),
                                     "--candidate",
                                     trainer(kFlipped),
                                     "-o",
                                     "third"});
  EXPECT_EQ(with.exit_code, 0) << with.out << with.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "third/rerouted/noise/00001.h5"));
}

TEST_F(CheckRouting, RerunIsForStoredReferences) {
  const ProcessResult result =
      ttrace(check(trainer(kReference), trainer(kFlipped), {"--rerun", trainer(kReference)}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--rerun belongs to a stored reference"));
}

TEST_F(CheckRouting, DiffOfARunTakesTheReferenceThatFits) {
  // A reference whose choices are the candidate's has noise passes of its own.
  ASSERT_EQ(ttrace(check(trainer(kReference), trainer(kReference))).exit_code, 0);
  const auto against_stored = [this](const std::string& candidate, const std::string& folder) {
    return ttrace(
        {"check", "--reference", "run/reference", "--candidate", candidate, "-o", folder});
  };
  ASSERT_EQ(against_stored(trainer(kFlipped), "flipped").exit_code, 0);
  EXPECT_EQ(ttrace({"diff", "flipped"}).exit_code, 0);
  const ProcessResult plain = ttrace({"diff", "run/reference", "flipped/candidate"});
  EXPECT_EQ(plain.exit_code, 2) << plain.out;
  EXPECT_THAT(plain.out,
              AllOf(HasSubstr("are not judged sharply"),
                    HasSubstr("or with a stored one and --rerun COMMAND")));
  ASSERT_EQ(against_stored(trainer("--route 6,1,2,3"), "other").exit_code, 0);
  const ProcessResult foreign = ttrace({"diff", "flipped/rerouted", "other/candidate"});
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("used the choices of another candidate"));
}

TEST_F(CheckRouting, ReferenceThatCannotGoOnStillJudgesTheRest) {
  const ProcessResult result =
      ttrace(check(trainer(std::string(kReference) + " --own-route"), trainer(kFlipped)));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("could not run with the candidate's choices"),
                    HasSubstr("goes its own way")));
  EXPECT_THAT(result.out, HasSubstr("UNDECIDED"));
}

}  // namespace
}  // namespace ttrace::testing
