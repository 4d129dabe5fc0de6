#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::part;
using ::testing::SizeIs;
using testing::TraceBuilder;
using testing::wavy;

// A reference with outputs a and b of 8 elements, and a candidate of two ranks. Rank 0 has halves
// of both and is finished.
class PartialTest : public ::testing::Test {
 protected:
  PartialTest() {
    reference_.add(0, {"s0/m0/output/a/0", wavy(8)});
    reference_.add(0, {"s0/m0/output/b/0", wavy(8)});
    candidate_.add(0, half("s0/m0/output/a/0", 0));
    candidate_.add(0, half("s0/m0/output/b/0", 0));
    candidate_.add(1, half("s0/m0/output/a/0", 1));
    static_cast<void>(reference_.write());
    static_cast<void>(candidate_.write());
    std::filesystem::remove(step_file(folder_ / "candidate", 0, 1));
  }

  static testing::Tensor half(const std::string& id, int rank) {
    const std::vector<double> all = wavy(8);
    return {id,
            {all.begin() + 4 * rank, all.begin() + 4 * rank + 4},
            ElementType::kF32,
            {4},
            part(8, rank, 2)};
  }

  // Rank 1's file with output a, flushed but not committed; `factor` of its values.
  std::unique_ptr<TraceWriter> begin_rank_1(float factor = 1.0F) {
    Layout layout;
    layout.rank = 1;
    layout.world_size = 2;
    layout.add("tp", 2, 1);
    auto writer = std::make_unique<TraceWriter>(step_file(folder_ / "candidate", 0, 1), layout);
    Record record;
    record.id = parse_tensor_id("s0/m0/output/a/0");
    record.shape = {4};
    record.placement = part(8, 1, 2);
    std::vector<float> values;
    for (const double value : half("", 1).values) {
      values.push_back(factor * static_cast<float>(value));
    }
    writer->append(record, std::as_bytes(std::span(values)));
    writer->flush();
    return writer;
  }

  Report run() const {
    return diff(Trace::open_partial(folder_ / "reference"),
                Trace::open_partial(folder_ / "candidate"));
  }

  testing::TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
};

TEST_F(PartialTest, FlushedPartsMakeWholeTensors) {
  begin_rank_1().reset();
  const Report report = run();
  EXPECT_TRUE(report.partial());
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.tensors[0].status(), Status::kWithin);
  EXPECT_EQ(report.tensors[1].status(), Status::kIncomplete);
  EXPECT_THAT(report.lacking, ElementsAre(HasSubstr("candidate: rank 1 was stopped while")));
}

TEST_F(PartialTest, WrongFlushedPartIsTheFirstDivergence) {
  begin_rank_1(2.0F).reset();
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/a/0");
}

TEST_F(PartialTest, FileThatIsBeingWrittenIsLeftAlone) {
  const std::unique_ptr<TraceWriter> alive = begin_rank_1();
  const Report report = run();
  EXPECT_THAT(report.lacking, ElementsAre(HasSubstr("another process is writing this file")));
  EXPECT_EQ(report.counts().incomplete, 2U);
  alive->commit();  // and its writer has not noticed
  EXPECT_THAT(Trace::open(folder_ / "candidate").steps().front().ranks, SizeIs(2));
}

TEST_F(PartialTest, GapInAStepThatIsWholeStaysAFinding) {
  begin_rank_1()->commit();  // without output b
  const Report report = run();
  EXPECT_FALSE(report.partial());
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(report.tensors[*report.first_divergence].symptom(), Symptom::kGap);
}

TEST_F(PartialTest, MissingTensorOfAWholeReferenceIsFoundInAWholeStepOnly) {
  TraceBuilder lacking(folder_ / "whole", "candidate");
  lacking.add(0, {"s0/m0/output/a/0", wavy(8)});
  static_cast<void>(lacking.write());
  const Report report =
      diff(Trace::open_partial(folder_ / "reference"), Trace::open_partial(folder_ / "whole"));
  EXPECT_THAT(report.lacking, IsEmpty());
  EXPECT_EQ(report.tensors[1].status(), Status::kMissingInCandidate);
}

TEST_F(PartialTest, FinishedButDamagedRankIsNamed) {
  begin_rank_1()->commit();
  std::filesystem::resize_file(step_file(folder_ / "candidate", 0, 1), 2000);
  EXPECT_THAT(run().lacking, ElementsAre(HasSubstr("rank00001.h5: ")));
}

TEST_F(PartialTest, ManifestIsNeeded) {
  std::filesystem::remove(folder_ / "candidate/manifest.json");
  EXPECT_THROW(static_cast<void>(run()), FormatError);
}

}  // namespace
}  // namespace ttrace
