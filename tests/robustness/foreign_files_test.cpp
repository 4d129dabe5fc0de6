// Files that are absent, of somebody else, of a newer format, or of runs that do not belong
// together.
#include "stored_traces.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_writer.h"

#include <hdf5.h>

#include <functional>
#include <sys/stat.h>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;

// ---- foreign files -----------------------------------------------------------------------------

// Puts something at `path` that TTrace did not write.
struct Foreign {
  const char* name;
  std::function<void(const std::string& path)> put;
};

const std::vector<Foreign>& foreign() {
  static const std::vector<Foreign> all = {
      {"Empty", [](const std::string& path) { write_bytes(path, ""); }},
      {"Text", [](const std::string& path) { write_bytes(path, "dear diary,\n"); }},
      {"Png",
       [](const std::string& path) {
         write_bytes(path, std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0", 20));
       }},
      {"Hdf5OfOthers",
       [](const std::string& path) {
         const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
         H5Gclose(H5Gcreate2(file, "/weights", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
         H5Fclose(file);
       }},
      {"JsonOfOthers", [](const std::string& path) { write_bytes(path, "{\"name\": \"app\"}"); }},
      {"Folder", [](const std::string& path) { fs::create_directory(path); }},
      {"Pipe", [](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
      {"EndlessDevice", [](const std::string& path) { fs::create_symlink("/dev/zero", path); }},
      {"DanglingLink", [](const std::string& path) { fs::create_symlink("nowhere", path); }},
  };
  return all;
}

class ForeignFile : public StoredTraces, public ::testing::WithParamInterface<std::size_t> {
 protected:
  [[nodiscard]] ProcessResult diff_with_foreign(const std::string& path) const {
    fs::remove(path);
    foreign()[GetParam()].put(path);
    return diff();
  }
};

TEST_P(ForeignFile, AsRankFileIsRefused) {
  expect_refused(diff_with_foreign(rank_file()), {rank_file()});
}
TEST_P(ForeignFile, AsManifestIsRefused) {
  expect_refused(diff_with_foreign(manifest()), {manifest()});
}
TEST_P(ForeignFile, AsNoiseTableIsRefused) {
  expect_refused(diff_with_foreign(noise_table()), {noise_table()});
}
// The candidate pass reads the reference's start parameters; so does the library's reader.
INSTANTIATE_TEST_SUITE_P(Kinds,
                         ForeignFile,
                         ::testing::Range(std::size_t{0}, foreign().size()),
                         [](const auto& chosen) { return foreign()[chosen.param].name; });

// ---- missing and misplaced files ---------------------------------------------------------------

using Missing = StoredTraces;

TEST_F(Missing, RankIsNamedWithItsStepAndARemedy) {
  fs::remove(rank_file());
  expect_refused(diff(),
                 {"rank 1 wrote nothing for step 1", rank_file(), "forward the TTRACE_ variables"});
}

TEST_F(Missing, StepIsNamed) {
  fs::remove_all(candidate() + "/step000001");
  expect_refused(diff(), {"rank 0 wrote nothing for step 1", candidate() + "/step000001"});
}

TEST_F(Missing, ManifestIsNamed) {
  fs::remove(manifest());
  expect_refused(diff(), {manifest(), "either this folder is not a trace, or rank 0"});
}

TEST_F(Missing, FolderIsNamed) {
  fs::remove_all(candidate());
  expect_refused(diff(), {"there is no folder " + candidate()});
}

TEST_F(Missing, TraceThatIsAFileIsNamed) {
  fs::remove_all(candidate());
  write_bytes(candidate(), "not a folder");
  expect_refused(diff(), {"there is no folder " + candidate()});
}

TEST_F(Missing, EmptyFolderIsNoTrace) {
  fs::remove_all(candidate());
  fs::create_directory(candidate());
  expect_refused(diff(), {manifest(), "this folder is not a trace"});
}

TEST_F(Missing, NoisePassesOnlyWidenTheBounds) {
  fs::remove_all(reference() + "/noise");
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("class defaults are weak"));
}

TEST_F(Missing, NoiseFolderThatIsAFileIsNamed) {
  fs::remove_all(reference() + "/noise");
  write_bytes(reference() + "/noise", "not a folder");
  expect_refused(diff(), {reference() + "/noise"});
}

// Takes a link or an attribute out of a finished file, as a broken copying tool might.
void remove_from(const std::string& path, const std::function<herr_t(hid_t)>& removal) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  EXPECT_GE(removal(file), 0);
  H5Fclose(file);
}

TEST_F(Missing, IndexIsNamed) {
  remove_from(rank_file(), [](hid_t file) { return H5Ldelete(file, "/index", H5P_DEFAULT); });
  expect_refused(
      diff(), {rank_file(), "'/index', which its writer wrote, is absent", "run the pass again"});
}

TEST_F(Missing, BlobIsNamed) {
  remove_from(rank_file(), [](hid_t file) { return H5Ldelete(file, "/blob/000000", H5P_DEFAULT); });
  expect_refused(diff(), {rank_file(), "/blob/000000", "run the pass again"});
}

class MissingAttribute : public StoredTraces, public ::testing::WithParamInterface<const char*> {};

TEST_P(MissingAttribute, IsNamed) {
  remove_from(rank_file(), [](hid_t file) { return H5Adelete(file, GetParam()); });
  expect_refused(diff(), {rank_file(), std::string("attribute '") + GetParam() + "' is absent"});
}

INSTANTIATE_TEST_SUITE_P(
    Names,
    MissingAttribute,
    ::testing::Values("ttrace_format", "rank", "world_size", "layout", "records", "notes"),
    [](const auto& chosen) { return std::string(chosen.param); });

TEST_F(Missing, RankFileOfAnotherRankIsRefused) {
  fs::copy_file(
      candidate() + "/step000001/rank00000.h5", rank_file(), fs::copy_options::overwrite_existing);
  expect_refused(diff(), {rank_file(), "rank 0 of 2 wrote this file", "expects rank 1 of 2"});
}

TEST_F(Missing, RankFileOfAnotherStepIsRefused) {
  fs::copy_file(
      candidate() + "/step000000/rank00001.h5", rank_file(), fs::copy_options::overwrite_existing);
  expect_refused(diff(), {rank_file(), "which does not belong to step 1"});
}

TEST_F(Missing, RankThatWasStoppedIsNamed) {
  fs::rename(rank_file(), rank_file() + ".tmp");
  expect_refused(diff(), {"rank 1 was stopped while it wrote step 1", rank_file() + ".tmp"});
}

TEST_F(Missing, RankThatFailedIsQuoted) {
  fs::remove(rank_file());
  write_bytes(failed_file(candidate(), 1, 1), "the moon was full\n");
  expect_refused(diff(), {"rank 1 could not finish step 1: the moon was full"});
}

// ---- newer formats -----------------------------------------------------------------------------

using Newer = StoredTraces;

void set_format(const std::string& path, std::int32_t version) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, "ttrace_format", H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT32, &version), 0);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST_F(Newer, RankFileSaysWhatThisProgramReads) {
  set_format(rank_file(), kFormatVersion + 1);
  expect_refused(diff(), {rank_file(), "a newer TTrace wrote this file (format 2"});
}

TEST_F(Newer, NoiseTableSaysWhatThisProgramReads) {
  set_format(noise_table(), kFormatVersion + 1);
  expect_refused(diff(), {noise_table(), "a newer TTrace wrote this file (format 2"});
}

TEST_F(Newer, ManifestSaysWhatThisProgramReads) {
  Manifest changed = read_manifest(candidate());
  changed.format_version = kFormatVersion + 1;
  write_manifest(candidate(), changed);
  expect_refused(diff(), {manifest(), "a newer TTrace wrote this file (format 2"});
}

// ---- runs that do not belong together ----------------------------------------------------------

class Contradiction : public StoredTraces {
 protected:
  void change_manifest(const std::function<void(Manifest&)>& change) const {
    Manifest changed = read_manifest(candidate());
    change(changed);
    write_manifest(candidate(), changed);
  }

  // Puts a file of one tensor of the candidate's, under another layout, in the place of rank 1's.
  void rewrite_rank(const Layout& layout) const {
    fs::remove(rank_file());
    TraceWriter writer(rank_file(), layout);
    Record record;
    record.id = {.step = 1, .microbatch = 0, .kind = Kind::kOutput, .path = "x"};
    record.type = ElementType::kU8;
    record.shape = {1};
    record.placement = whole(record.shape);
    writer.append(record, std::vector<std::byte>(1));
    writer.commit();
  }
};

TEST_F(Contradiction, AnotherModelIsNotCompared) {
  change_manifest([](Manifest& changed) { changed.model["hidden"] = "32"; });
  expect_refused(diff(), {"model key `hidden` is `16` in the reference and `32` in the candidate"});
}

TEST_F(Contradiction, OtherDataAreNotCompared) {
  change_manifest([](Manifest& changed) { changed.data["seed"] = "2"; });
  expect_refused(diff(), {"data key `seed` is absent in the reference and `2` in the candidate"});
}

TEST_F(Contradiction, OtherStepsAreNotCompared) {
  change_manifest([](Manifest& changed) { changed.steps = {0}; });
  expect_refused(diff(), {"the reference holds steps 0, 1, but the candidate holds 0"});
}

TEST_F(Contradiction, UnknownPrecisionIsNamed) {
  change_manifest([](Manifest& changed) { changed.precision = "f12"; });
  expect_refused(diff(), {candidate(), "precision `f12`"});
}

TEST_F(Contradiction, AnotherWorldSizeInTheManifestIsRefused) {
  change_manifest([](Manifest& changed) { changed.world_size = 1; });
  expect_refused(diff(), {"rank 0 of 2 wrote this file, but the manifest expects rank 0 of 1"});
}

TEST_F(Contradiction, RanksOfDifferentAxesAreRefused) {
  Layout layout{.rank = 1, .world_size = 2, .axes = {}};
  rewrite_rank(layout.add("dp", 2, 1));
  expect_refused(diff(), {rank_file(), "rank 1 has the layout dp 2, but rank 0 has tp 2"});
}

TEST_F(Contradiction, AxisThatNoRankStandsOnIsNamed) {
  Layout layout{.rank = 1, .world_size = 2, .axes = {}};
  rewrite_rank(layout.add("tp", 2, 0));
  expect_refused(diff(), {"axis tp has size 2, but none of the 2 ranks has coordinate 1 on it"});
}

TEST_F(Contradiction, TracesWithoutACommonTensorAreRefused) {
  for (const char* step : {"0", "1"}) {
    for (int rank = 0; rank < 2; ++rank) {
      const std::string file = step_file(candidate(), *step - '0', rank);
      fs::remove(file);
      Layout layout{.rank = rank, .world_size = 2, .axes = {}};
      TraceWriter(file, layout.add("tp", 2, rank)).commit();
    }
  }
  expect_refused(diff(), {"no tensor is in both traces", candidate()});
}

}  // namespace
}  // namespace ttrace::testing
