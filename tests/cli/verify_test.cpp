#include "trace_fixture.h"

#include <cstring>
#include <filesystem>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Verify : public TraceCliTest {
 protected:
  // One problem, whose line holds `part`.
  void expect_problem(const std::string& trace, const std::string& part) const {
    const ProcessResult result = ttrace({"verify", trace});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr(part), HasSubstr("\n1 problem: ")));
  }
};

TEST_F(Verify, SoundTraceWithNoiseIsSound) {
  write();
  write_noise_passes(folder_ / "reference", {noise_row("s0/m0/output/mlp.fc1/0", 1e-6, 1e-6)}, 2);
  const ProcessResult result = ttrace({"verify", "reference"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "sound: 3 files, 3 tensors, 48 bytes read\n");
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Verify, WholeCheckIsSound) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2"))).exit_code, 0);
  EXPECT_EQ(ttrace({"verify", "run/reference"}).exit_code, 0);
  EXPECT_EQ(ttrace({"verify", "run/candidate"}).exit_code, 0);
}

TEST_F(Verify, ChangedByteIsFoundByItsDigest) {
  reference_.add(0, {"s0/m0/output/marked/0", {0x6d6172, 0x6b6564}, ElementType::kI64});
  write();
  corrupt("reference/step000000/rank00000.h5", std::string("ram\0\0\0\0\0dek", 11));
  expect_problem("reference",
                 "the bytes of s0/m0/output/marked/0 have changed since they were written");
}

// A bit of a squared sum made a bound of 1.6e148: the wrong candidate got WITHIN BOUND, and verify
// said "sound".
TEST_F(Verify, FlippedBitOfANoiseTableIsFoundAlsoByDiff) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--differ"), {"--no-forced"})).exit_code, 1);
  const std::string table = "run/reference/noise/00001.h5";
  const double squared = static_cast<double>(1e-6F) * static_cast<double>(1e-6F);
  std::string bytes(sizeof squared, '\0');
  std::memcpy(bytes.data(), &squared, sizeof squared);
  std::string whole = file(table);
  const std::size_t place = whole.find(bytes);
  ASSERT_NE(place, std::string::npos);
  whole[place + 7] = static_cast<char>(whole[place + 7] ^ 0x40);
  std::ofstream(folder_ / table, std::ios::binary) << whole;
  const ProcessResult diff = ttrace({"diff", "run/reference", "run/candidate"});
  EXPECT_EQ(diff.exit_code, 2) << diff.out;
  EXPECT_THAT(diff.err, AllOf(HasSubstr(table), HasSubstr("'/noise' has changed")));
  expect_problem("run/reference", table + ": the file is damaged: '/noise' has changed");
}

TEST_F(Verify, FlippedBitOfAnIndexIsFoundAlsoByDiff) {
  write();
  corrupt("reference/step000000/rank00000.h5", "s0/m0/output/mlp.fc1/0");
  const ProcessResult diff = ttrace({"diff", "reference", "candidate"});
  EXPECT_EQ(diff.exit_code, 2) << diff.out;
  EXPECT_THAT(diff.err, AllOf(HasSubstr("rank00000.h5"), HasSubstr("'/index' has changed")));
  EXPECT_EQ(ttrace({"verify", "reference"}).exit_code, 2);  // nothing else is there
}

TEST_F(Verify, FilesOfAnEarlierVersionAreSoundAndNamedAsSuch) {
  write();
  std::string manifest = file("reference/manifest.json");
  manifest.erase(manifest.rfind(",\n  \"digest\""));
  std::ofstream(folder_ / "reference/manifest.json") << manifest << "}";
  const ProcessResult result = ttrace({"verify", "reference"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("1 file has no digests"), HasSubstr("an earlier version wrote it")));
}

TEST_F(Verify, MissingRankIsNamed) {
  write();
  fs::remove(folder_ / "candidate/step000000/rank00001.h5");
  expect_problem("candidate", "rank 1 wrote nothing for step 0: candidate/step000000/rank00001.h5");
}

TEST_F(Verify, RankThatCouldNotFinishTellsWhy) {
  write();
  fs::remove(folder_ / "candidate/step000000/rank00001.h5");
  std::ofstream(folder_ / "candidate/step000000/rank00001.failed") << "the disk was full\n";
  expect_problem("candidate", "rank 1 could not finish step 0: the disk was full");
}

TEST_F(Verify, FileOfAnotherRankIsNoticed) {
  write();
  fs::copy_file(folder_ / "candidate/step000000/rank00000.h5",
                folder_ / "candidate/step000000/rank00001.h5",
                fs::copy_options::overwrite_existing);
  expect_problem("candidate", "rank00001.h5: rank 0 of 2 wrote this file");
}

TEST_F(Verify, LayoutThatContradictsTheManifestIsNoticed) {
  candidate_.manifest.layout = {{"tp", "2"}, {"pp", "3"}};
  static_cast<void>(candidate_.write());
  const ProcessResult result = ttrace({"verify", "candidate"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              HasSubstr("the manifest has an axis pp of size 3, but this file does not"));
}

TEST_F(Verify, PartsThatDoNotMakeAWholeAreNoticed) {
  candidate_.add(0, {"s0/m0/output/torn/0", {1, 2}, ElementType::kF32, {2}, part(4, 0, 2)});
  write();
  expect_problem("candidate", "s0/m0/output/torn/0: gap: no rank holds [2:4]");
}

TEST_F(Verify, DamagedNoiseTableIsNamedAndTheRestIsReadOn) {
  write();
  write_noise_passes(folder_ / "reference", {noise_row("s0/m0/output/mlp.fc1/0", 1e-6, 1e-6)}, 2);
  std::ofstream(folder_ / "reference/noise/00001.h5") << "nothing";
  expect_problem("reference", "reference/noise/00001.h5: this is not an HDF5 file");
}

TEST_F(Verify, NoiseOfAnotherTraceIsNoticed) {
  write();
  write_noise_passes(folder_ / "reference", {noise_row("s0/m0/output/other/0", 1e-6, 1e-6)}, 1);
  expect_problem("reference", "the file names 1 tensor that the trace does not hold");
}

TEST_F(Verify, DamagedStartParametersAreNamed) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  fs::resize_file(folder_ / "run/reference/start/rank00000.h5", 1000);
  expect_problem("run/reference", "run/reference/start/rank00000.h5: ");
}

TEST_F(Verify, NothingReadableIsExitCodeTwo) {
  write();
  fs::remove(folder_ / "reference/step000000/rank00000.h5");
  const ProcessResult result = ttrace({"verify", "reference"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no rank's file in reference can be read"));
  fs::remove(folder_ / "candidate/manifest.json");
  EXPECT_EQ(ttrace({"verify", "candidate"}).exit_code, 2);
  EXPECT_EQ(ttrace({"verify"}).exit_code, 2);
}

TEST_F(Verify, ProgressIsShownOnATerminalOnly) {
  write();
  ProcessOptions asked = options({"verify", "reference"});
  asked.terminal = true;
  EXPECT_THAT(run_process(asked).out, AllOf(HasSubstr("digests 1 of 1"), HasSubstr("sound: ")));
}

}  // namespace
}  // namespace ttrace::testing
