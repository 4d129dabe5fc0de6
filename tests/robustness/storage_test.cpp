// Disks that are full, read-only or gone while passes write to them.
#include "stored_traces.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <cerrno>
#include <cstring>
#include <sys/mount.h>
#include <thread>
#include <unistd.h>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr std::size_t kDiskBytes = std::size_t{512} << 10;

class Storage : public CliTest {
 protected:
  [[nodiscard]] std::string traced(const std::string& switches = "") const {
    return std::string(TRACED_TRAINER) + " " + switches + " --tag " + folder_.path();
  }

  // Every file below `root` that bears the name of a finished rank file has to be one.
  static void expect_no_half_written_file(const std::string& root) {
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().extension() == ".h5" &&
          entry.path().parent_path().filename().string().starts_with("step")) {
        EXPECT_NO_THROW(RankFile(entry.path().string())) << entry.path();
      }
    }
  }

  void expect_failed_pass(const ProcessResult& result,
                          const std::vector<std::string>& words) const {
    EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.out, ::testing::IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("ttrace: error: "));
    for (const std::string& word : words) {
      EXPECT_THAT(result.err, HasSubstr(word));
    }
    expect_no_half_written_file(folder_.path());
  }
};

// A limit on the size of files fails writes as a full disk does; it needs no rights.
TEST_F(Storage, WriteLimitFailsThePassWithPathAndRemedy) {
  const ProcessResult result = ttrace(check(traced(), "ulimit -f 64; exec " + traced()));
  expect_failed_pass(
      result,
      {"the candidate pass failed",
       "run/candidate/step000000/rank00000.h5.tmp: the file cannot be written: File too large",
       "free space there, or set another TTRACE_DIR",
       "pass --reference run/reference to reuse it"});
}

TEST_F(Storage, WriteLimitInANoisePassIsNamed) {
  const ProcessResult result =
      ttrace(check("case $TTRACE_PASS in noise) ulimit -f 64;; esac; exec " + traced(), traced()));
  expect_failed_pass(
      result, {"the noise 1 of 1 pass failed", "noise/00001.h5.tmp: the file cannot be written"});
}

TEST_F(Storage, FolderThatVanishesInAStepIsNamed) {
  const ProcessResult result = ttrace(
      check(traced(),
            "[ $TTRACE_COUNT ] && exec " + traced() + "; exec " + traced("--at 0 --do remove")));
  expect_failed_pass(result,
                     {"the candidate pass failed",
                      "rank00000.h5.tmp: the file cannot be renamed to",
                      "No such file or directory"});
}

TEST_F(Storage, FileInPlaceOfTheFolderIsNamed) {
  const std::string blocked = "[ $TTRACE_COUNT ] || echo > $TTRACE_DIR; exec " + traced();
  const ProcessResult result = ttrace(check(traced(), blocked));
  expect_failed_pass(result,
                     {"the candidate pass failed",
                      "run/candidate: the folder cannot be created",
                      "set another TTRACE_DIR"});
}

TEST_F(Storage, FileInPlaceOfTheOutputFolderIsNamed) {
  write_bytes(folder_ / "file", "in the way");
  std::vector<std::string> arguments = check(traced(), traced());
  arguments.back() = "file/run";
  expect_refused(ttrace(arguments), {"file/run"});
}

// ---- real file systems, which only root can mount ----------------------------------------------

class Mounted : public Storage {
 protected:
  void SetUp() override {
    fs::create_directory(disk());
    mounted_ = ::mount("tmpfs", disk().c_str(), "tmpfs", 0, "size=512k") == 0;
    if (!mounted_) {
      GTEST_SKIP() << "NOT TESTED: mounting a small tmpfs needs root and CAP_SYS_ADMIN; run the "
                      "tests as root";
    }
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(::umount2(disk().c_str(), MNT_DETACH), 0);
    }
    CliTest::TearDown();
  }

  [[nodiscard]] std::string disk() const { return folder_ / "disk"; }
  // A writer that has just renamed its file may not have closed it yet: the disk is busy till then.
  void make_read_only() const {
    int result = -1;
    do {
      result = ::mount("tmpfs", disk().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=512k");
    } while (result != 0 && errno == EBUSY && (std::this_thread::yield(), true));
    ASSERT_EQ(result, 0) << std::strerror(errno);
  }
  void fill(std::size_t leave) const {
    const std::size_t free = fs::space(disk()).available;
    write_bytes(disk() + "/ballast", std::string(free - leave, 'x'));
  }
  // A single pass that writes to the disk.
  [[nodiscard]] ProcessResult pass() const {
    return run_process({.arguments = {"/bin/sh", "-c", "exec " + traced()},
                        .environment = {{"TTRACE_PASS", "candidate"},
                                        {"TTRACE_START", "own"},
                                        {"TTRACE_STEPS", "0:3"},
                                        {"TTRACE_DIR", disk() + "/trace"}},
                        .directory = folder_.path()});
  }
  [[nodiscard]] std::vector<std::string> check_onto_disk() const {
    std::vector<std::string> arguments = check(traced(), traced());
    arguments.back() = disk() + "/run";
    return arguments;
  }

 private:
  bool mounted_ = false;
};

TEST_F(Mounted, FullDiskEndsTracingWithFinishedStepsReadableAndTrainingGoesOn) {
  const ProcessResult result = pass();  // a step takes about 200 KB
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("trained to the end"));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("tracing stopped, but training continues: " + disk() +
                              "/trace/step000002/rank00000.h5.tmp: the file cannot be written: No "
                              "space left on device"),
                    HasSubstr("free space there, or set another TTRACE_DIR")));
  EXPECT_GT(RankFile(step_file(disk() + "/trace", 1, 0)).records().size(), 10U);
  EXPECT_FALSE(fs::exists(step_file(disk() + "/trace", 2, 0)));
  expect_refused(ttrace({"diff", disk() + "/trace", disk() + "/trace"}),
                 {"rank 0 could not finish step 2: ", "no space was left on its disk"});
}

TEST_F(Mounted, FullDiskAtEveryFillLevelLeavesWholeFilesOrNone) {
  int refused = 0;
  for (std::size_t leave = 0; leave < kDiskBytes; leave += kDiskBytes / 16) {
    SCOPED_TRACE(leave);
    fs::remove_all(disk() + "/trace");
    fs::remove(disk() + "/ballast");
    fill(leave);
    const ProcessResult result = pass();
    EXPECT_EQ(result.signal, 0);
    EXPECT_FALSE(result.timed_out);
    refused += result.err.find("No space left on device") == std::string::npos ? 0 : 1;
    expect_no_half_written_file(disk());
  }
  EXPECT_GT(refused, 10);
}

TEST_F(Mounted, CheckOntoAFullDiskIsRefused) {
  fill(0);
  const ProcessResult result = ttrace(check_onto_disk());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("ttrace: error: "), HasSubstr(disk() + "/run")));
}

TEST_F(Mounted, CheckThatFillsTheDiskIsAFailedPass) {
  fill(kDiskBytes / 3);  // enough for the reference, not for the candidate
  // The reason does not fit on the disk either.
  expect_failed_pass(ttrace(check_onto_disk()), {"pass failed", "no space was left on its disk"});
}

TEST_F(Mounted, CheckOntoAReadOnlyDiskIsRefused) {
  make_read_only();
  expect_refused(ttrace(check_onto_disk()), {disk() + "/run", "Read-only file system"});
}

TEST_F(Mounted, PassOntoAReadOnlyDiskIsNamedByTheProgram) {
  make_read_only();
  const ProcessResult result = pass();
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(disk() + "/trace"),
                    HasSubstr("Read-only file system"),
                    HasSubstr("set another TTRACE_DIR")));
}

TEST_F(Mounted, DiskThatTurnsReadOnlyBetweenStepsKeepsFinishedSteps) {
  RunningProcess running(
      {.arguments = {"/bin/sh", "-c", "exec " + traced("--at 1 --meet " + (folder_ / "go"))},
       .environment = {{"TTRACE_PASS", "candidate"},
                       {"TTRACE_START", "own"},
                       {"TTRACE_STEPS", "0:1"},
                       {"TTRACE_DIR", disk() + "/trace"}},
       .directory = folder_.path()});
  while (!fs::exists(step_file(disk() + "/trace", 0, 0))) {
    std::this_thread::yield();
  }
  make_read_only();
  write_bytes(folder_ / "go", "");
  EXPECT_EQ(running.wait().exit_code, 0);
  EXPECT_EQ(ttrace({"diff", disk() + "/trace", disk() + "/trace"}).exit_code, 0)
      << "read-only traces are readable";
}

}  // namespace
}  // namespace ttrace::testing
