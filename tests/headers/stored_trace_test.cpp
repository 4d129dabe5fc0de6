// The view of a program that reads traces.
#include "examples/trace.h"
#include "support/temporary_directory.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_writer.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>
#include <ttrace/trace.h>

#include <gmock/gmock.h>

#include <filesystem>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TemporaryDirectory;

constexpr const char* kOutput = "s0/m0/output/fc/0";
constexpr const char* kScalar = "s0/scalar/grad_norm/0";

struct Written {
  std::string id;
  std::string dims;  // empty: a scalar
  std::vector<double> values;
};

void write_rank(const std::string& directory, int rank, const std::vector<Written>& tensors) {
  Layout layout;
  layout.rank = rank;
  layout.world_size = 2;
  layout.add("tp", 2, rank);
  TraceWriter writer(step_file(directory, 0, rank), layout);
  for (const Written& tensor : tensors) {
    Record record;
    record.id = parse_tensor_id(tensor.id);
    record.type = ElementType::kF32;
    record.shape = tensor.dims.empty() ? std::vector<std::int64_t>()
                                       : std::vector<std::int64_t>{std::ssize(tensor.values)};
    record.placement = tensor.dims.empty() ? whole(record.shape)
                                           : place(parse_dims(tensor.dims), record.shape, layout);
    std::vector<std::byte> bytes(tensor.values.size() * sizeof(float));
    from_double(record.type, tensor.values.data(), std::ssize(tensor.values), bytes.data());
    writer.append(std::move(record), bytes);
  }
  writer.commit();
}

// A trace of two ranks: a sharded output and a scalar that both hold.
std::string write_trace(const std::string& directory, double scalar_of_rank_1 = 1.5) {
  Manifest manifest;
  manifest.pass = "candidate";
  manifest.world_size = 2;
  manifest.steps = {0};
  manifest.precision = "f32";
  manifest.layout = {{"tp", "2"}};
  manifest.model = {{"hidden", "4"}};
  write_manifest(directory, manifest);
  write_rank(directory, 0, {{kOutput, "h[tp]", {1.0, 2.0}}, {kScalar, "", {1.5}}});
  write_rank(directory, 1, {{kOutput, "h[tp]", {3.0, 4.0}}, {kScalar, "", {scalar_of_rank_1}}});
  return directory;
}

// The example runs where its trace is.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() { std::filesystem::current_path(before_); }
  WorkingDirectory(const WorkingDirectory&) = delete;  // returns once
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

TEST(StoredTrace, ExampleOfTheHeaderPrintsEveryTensor) {
  const TemporaryDirectory directory;
  write_trace(directory / "runs/1/candidate");
  const WorkingDirectory here(directory.path());
  ::testing::internal::CaptureStdout();
  example_of_trace();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "s0/scalar/grad_norm/0 0 dimensions\ns0/m0/output/fc/0 1 dimensions\n");
}

TEST(StoredTrace, SaysWhatTheManifestSays) {
  const TemporaryDirectory directory;
  const StoredTrace trace = StoredTrace::open(write_trace(directory / "trace"));
  EXPECT_EQ(trace.pass(), "candidate");
  EXPECT_EQ(trace.world_size(), 2);
  EXPECT_THAT(trace.steps(), ElementsAre(0));
  EXPECT_EQ(trace.layout().at("tp"), "2");
  EXPECT_EQ(trace.description().precision, "f32");
  EXPECT_EQ(trace.description().model.at("hidden"), "4");
}

TEST(StoredTrace, JoinsTheRanksPartsOfATensor) {
  const TemporaryDirectory directory;
  const StoredTrace trace = StoredTrace::open(write_trace(directory / "trace"));
  const auto records = trace.records(parse_tensor_id(kOutput));
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(records[1].rank, 1);
  EXPECT_THAT(records[1].shape, ElementsAre(2));

  const MergedTensor tensor = trace.merged(kOutput);
  EXPECT_EQ(tensor.type, ElementType::kF32);
  EXPECT_THAT(tensor.shape, ElementsAre(4));
  EXPECT_THAT(tensor.values(), ElementsAre(1.0, 2.0, 3.0, 4.0));
  EXPECT_THAT(tensor.bytes, SizeIs(16));
  EXPECT_THAT(tensor.contradictions, IsEmpty());
}

TEST(StoredTrace, TensorOutlivesItsTrace) {
  const TemporaryDirectory directory;
  const MergedTensor tensor = [&] {
    return StoredTrace::open(write_trace(directory / "trace")).merged(kScalar);
  }();
  EXPECT_THAT(tensor.values(), ElementsAre(1.5));
}

TEST(StoredTrace, ReplicasThatDifferAreReportedWithTheTensor) {
  const TemporaryDirectory directory;
  const StoredTrace trace = StoredTrace::open(write_trace(directory / "trace", 2.5));
  const MergedTensor tensor = trace.merged(kScalar);
  EXPECT_THAT(tensor.values(), ElementsAre(1.5)) << "the lowest rank's";
  EXPECT_THAT(tensor.contradictions, SizeIs(1));
}

TEST(StoredTrace, RefusesWhatIsNotThere) {
  const TemporaryDirectory directory;
  EXPECT_THROW(static_cast<void>(StoredTrace::open(directory / "nowhere")), FormatError);
  const StoredTrace trace = StoredTrace::open(write_trace(directory / "trace"));
  EXPECT_THROW(static_cast<void>(trace.merged("no id")), FormatError);
  EXPECT_THAT(trace.records(parse_tensor_id("s0/m0/output/other/0")), IsEmpty());
  try {
    static_cast<void>(trace.merged("s0/m0/output/other/0"));
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("has no s0/m0/output/other/0"));
  }
}

TEST(StoredTrace, PartThatNoRankHoldsLeavesNoTensor) {
  const TemporaryDirectory directory;
  const std::string path = write_trace(directory / "trace");
  std::filesystem::remove(step_file(path, 0, 1));
  write_rank(path, 1, {{kScalar, "", {1.5}}});
  const StoredTrace trace = StoredTrace::open(path);
  EXPECT_THROW(static_cast<void>(trace.merged(kOutput)), FormatError);
}

}  // namespace
}  // namespace ttrace
