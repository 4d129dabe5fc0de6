#include "trace/file/manifest.h"

#include "support/temporary_directory.h"
#include "trace/file_helpers.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

Manifest example() {
  Manifest manifest;
  manifest.pass = "candidate";
  manifest.world_size = 8;
  manifest.steps = {0, 5};
  manifest.precision = "bf16";
  manifest.layout = {{"tp", "2"}, {"dp", "4"}};
  manifest.model = {{"hidden", "128"}};
  manifest.data = {{"seed", "1"}, {"file", "wörter.txt"}};
  manifest.versions = {{"ttrace", "0.1.0"}};
  manifest.roles = {{"attention", "h.*.attn*"}};
  manifest.numerics = {{"device", "cuda"}, {"f32_products", "tf32"}};
  return manifest;
}

// The message for a manifest in which `from` is replaced by `to`.
std::string complaint_about(const std::string& from, const std::string& to) {
  const TemporaryDirectory folder;
  write_manifest(folder.path(), example());
  std::string text = read_file(folder / "manifest.json");
  const std::size_t position = text.find(from);
  EXPECT_NE(position, std::string::npos) << from << " is not in " << text;
  write_file(folder / "manifest.json", text.replace(position, from.size(), to));
  return message_of<FormatError>([&] { static_cast<void>(read_manifest(folder.path())); });
}

// An edited precision changed a verdict, and nothing said so.
TEST(Manifest, ChangedTextIsRefused) {
  EXPECT_THAT(complaint_about("\"bf16\"", "\"f32\""),
              AllOf(HasSubstr("manifest.json: the manifest has changed since it was written"),
                    HasSubstr("remove the key 'digest'")));
  EXPECT_THAT(complaint_about("\"data\"", "\"dota\": {}, \"data\""), HasSubstr("has changed"));
}

TEST(Manifest, WhiteSpaceIsNoChange) {
  const TemporaryDirectory folder;
  write_manifest(folder.path(), example());
  const std::string text = read_file(folder / "manifest.json");
  write_file(folder / "manifest.json", "\n" + text + "\n\n");
  EXPECT_TRUE(read_manifest(folder.path()).has_digest);
}

TEST(Manifest, OfAnEarlierVersionHasNoDigest) {
  const TemporaryDirectory folder;
  write_manifest(folder.path(), example());
  std::string text = read_file(folder / "manifest.json");
  const std::size_t key = text.rfind(",\n  \"digest\"");
  ASSERT_NE(key, std::string::npos);
  write_file(folder / "manifest.json", text.substr(0, key) + "}");
  const Manifest read = read_manifest(folder.path());
  EXPECT_FALSE(read.has_digest);
  EXPECT_EQ(read.world_size, 8);
}

TEST(Manifest, RoundTrips) {
  const TemporaryDirectory folder;
  const std::string directory = folder / "new/trace";
  write_manifest(directory, example());
  const Manifest read = read_manifest(directory);
  EXPECT_EQ(read.format_version, kFormatVersion);
  EXPECT_EQ(read.pass, "candidate");
  EXPECT_EQ(read.world_size, 8);
  EXPECT_EQ(read.steps, example().steps);
  EXPECT_EQ(read.precision, "bf16");
  EXPECT_EQ(read.layout, example().layout);
  EXPECT_EQ(read.model, example().model);
  EXPECT_EQ(read.data, example().data);
  EXPECT_EQ(read.versions, example().versions);
  EXPECT_EQ(read.roles, example().roles);
  EXPECT_EQ(read.numerics, example().numerics);
}

TEST(Manifest, OfAnImportedTraceNamesTheForeignFormat) {
  const TemporaryDirectory folder;
  Manifest manifest = example();
  manifest.pass = kImportedPass;
  manifest.imported_from = "safetensors";
  write_manifest(folder.path(), manifest);
  EXPECT_EQ(read_manifest(folder.path()).imported_from, "safetensors");
  write_manifest(folder.path(), example());
  EXPECT_THAT(read_file(folder / "manifest.json"), ::testing::Not(HasSubstr("imported_from")));
}

TEST(Manifest, EarlierVersionsDidNotSayWhatTheMachineDoes) {
  const TemporaryDirectory folder;
  Manifest old = example();
  old.numerics.clear();
  write_manifest(folder.path(), old);
  EXPECT_THAT(read_file(folder / "manifest.json"), ::testing::Not(HasSubstr("numerics")));
  EXPECT_TRUE(read_manifest(folder.path()).numerics.empty());
}

TEST(Manifest, KeepsThePrecisionThatTheProgramWantedIfItAsked) {
  const TemporaryDirectory folder;
  Manifest manifest = example();
  write_manifest(folder.path(), manifest);
  EXPECT_THAT(read_file(folder / "manifest.json"), ::testing::Not(HasSubstr("intended")));
  EXPECT_EQ(read_manifest(folder.path()).intended, "");
  manifest.intended = "f32";
  write_manifest(folder.path(), manifest);
  EXPECT_EQ(read_manifest(folder.path()).intended, "f32");
  EXPECT_EQ(read_manifest(folder.path()).precision, "bf16");
}

TEST(Manifest, LeavesNoTemporaryFileAndReplacesAnOlderOne) {
  const TemporaryDirectory folder;
  write_file(folder / "manifest.json.tmp", std::string(10000, 'x'));
  write_manifest(folder.path(), example());
  Manifest changed = example();
  changed.pass = "reference";
  write_manifest(folder.path(), changed);
  EXPECT_EQ(read_manifest(folder.path()).pass, "reference");
  EXPECT_FALSE(std::filesystem::exists(folder / "manifest.json.tmp"));
}

TEST(Manifest, AbsentOneNamesPathAndCause) {
  const TemporaryDirectory folder;
  EXPECT_THAT(message_of<FormatError>([&] { static_cast<void>(read_manifest(folder.path())); }),
              AllOf(HasSubstr(folder / "manifest.json"), HasSubstr("No such file or directory")));
}

TEST(Manifest, ForeignTextIsNoManifest) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"format": "other"})", "\xff\xfe"}) {
    const TemporaryDirectory folder;
    write_file(folder / "manifest.json", text);
    EXPECT_THAT(message_of<FormatError>([&] { static_cast<void>(read_manifest(folder.path())); }),
                HasSubstr("this is not the manifest of a trace"))
        << text;
  }
}

TEST(Manifest, NewerFormatSaysWhatThisProgramReads) {
  EXPECT_THAT(complaint_about("\"version\": 1", "\"version\": 2"),
              HasSubstr("a newer TTrace wrote this file (format 2, but this program reads 1)"));
}

TEST(Manifest, WrongTypesNameTheKey) {
  EXPECT_THAT(complaint_about("\"world_size\": 8", "\"world_size\": \"8\""),
              HasSubstr("key 'world_size' must be a positive integer, not \"8\""));
  EXPECT_THAT(complaint_about("\"world_size\": 8", "\"world_size\": 8.0"),
              HasSubstr("key 'world_size' must be a positive integer, not 8.0"));
  EXPECT_THAT(complaint_about("\"world_size\": 8", "\"world_size\": 4294967304"),
              HasSubstr("key 'world_size' must be a positive integer, not 4294967304"));
  EXPECT_THAT(complaint_about("\"pass\": \"candidate\"", "\"pass\": 3"),
              HasSubstr("key 'pass' must be text, not 3"));
  EXPECT_THAT(complaint_about("\"hidden\": \"128\"", "\"hidden\": 128"),
              HasSubstr("key 'model.hidden' must be text, not 128"));
  EXPECT_THAT(complaint_about("\"precision\"", "\"intended\": 1, \"precision\""),
              HasSubstr("key 'intended' must be text, not 1"));
  EXPECT_THAT(complaint_about("\"precision\"", "\"precison\""),
              HasSubstr("key 'precision' must be text, but it is missing"));
}

TEST(Manifest, StepsMustAscend) {
  const std::string expected = "key 'steps' must be a list of ascending integers from 0";
  const std::string steps = "[\n    0,\n    5\n  ]";
  for (const char* wrong :
       {"[5, 0]", "[0, 0]", "[-1]", "[0.5]", "[]", "0", "[18446744073709551615]"}) {
    EXPECT_THAT(complaint_about(steps, wrong), HasSubstr(expected)) << wrong;
  }
}

TEST(Manifest, BytesThatAreNoUtf8StillMakeAReadableFile) {
  const TemporaryDirectory folder;
  Manifest manifest = example();
  manifest.data["file"] = "\xff.txt";
  write_manifest(folder.path(), manifest);
  EXPECT_EQ(read_manifest(folder.path()).data.at("file"), "\xEF\xBF\xBD.txt");
}

TEST(Manifest, FolderThatCannotBeMadeNamesPathAndRemedy) {
  const TemporaryDirectory folder;
  write_file(folder / "file", "in the way");
  EXPECT_THAT(message_of<FormatError>([&] { write_manifest(folder / "file/trace", example()); }),
              AllOf(HasSubstr(folder / "file/trace"), HasSubstr("TTRACE_DIR")));
}

}  // namespace
}  // namespace ttrace
