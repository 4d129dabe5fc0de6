// Folders that leave the place where they were written.
#include "cli_fixture.h"

#include <filesystem>
#include <fstream>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Pack : public CliTest {
 protected:
  // A check in `run` whose reference is the stored one of `stored`.
  void check_with_stored_reference() const {
    ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
    fs::rename(folder_ / "run", folder_ / "stored");
    ASSERT_EQ(ttrace(check("stored/reference", trainer("--differ"))).exit_code, 1);
  }
  [[nodiscard]] int verdict(const std::string& run) const {
    return ttrace({"diff", run + "/reference", run + "/candidate"}).exit_code;
  }
  [[nodiscard]] int shell(const std::string& command) const {
    return run_process({.arguments = {"/bin/sh", "-c", command},
                        .environment = {},
                        .directory = folder_.path()})
        .exit_code;
  }
};

// Symptom: the link to a stored reference was absolute, so that a copied or moved folder was
// unreadable.
TEST_F(Pack, FoldersThatMoveTogetherStayReadable) {
  check_with_stored_reference();
  fs::create_directory(folder_ / "elsewhere");
  fs::rename(folder_ / "stored", folder_ / "elsewhere/stored");
  fs::rename(folder_ / "run", folder_ / "elsewhere/run");
  EXPECT_EQ(verdict("elsewhere/run"), 1);
}

TEST_F(Pack, TheFileHasTheStoredReferenceToo) {
  check_with_stored_reference();
  const ProcessResult packed = ttrace({"pack", "run/"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("run.tar.gz: "));
  EXPECT_FALSE(fs::exists(folder_ / "run.tar.gz.part"));
  fs::remove_all(folder_ / "stored");
  fs::remove_all(folder_ / "run");
  ASSERT_EQ(shell("mkdir other && tar xzf run.tar.gz -C other"), 0);
  EXPECT_EQ(verdict("other/run"), 1);
  EXPECT_FALSE(fs::is_symlink(folder_ / "other/run/reference"));
}

TEST_F(Pack, WhatIsThereIsNotOverwritten) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  std::ofstream(folder_ / "file") << "mine";
  const ProcessResult result = ttrace({"pack", "run", "-o", "file"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("file exists already"));
  EXPECT_EQ(file("file"), "mine");
}

TEST_F(Pack, LinksWithinATraceAreRefused) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  std::ofstream(folder_ / "secret") << "mine";
  fs::create_symlink("../../secret", folder_ / "run/reference/notes.txt");
  const ProcessResult result = ttrace({"pack", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("reference/notes.txt is a link"));
  EXPECT_FALSE(fs::exists(folder_ / "run.tar.gz"));
}

TEST_F(Pack, OtherFoldersAreRefused) {
  fs::create_directory(folder_ / "photos");
  const ProcessResult result = ttrace({"pack", "photos"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("photos is neither a trace nor a folder of ttrace check"));
}

}  // namespace
}  // namespace ttrace::testing
