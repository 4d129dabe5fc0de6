#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

class MarkdownReport : public ::testing::Test {
 protected:
  void add(const std::string& id, double factor = 1.0) {
    reference_.add(0, {id, wavy(4), ElementType::kF32});
    candidate_.add_everywhere({id, factor == 1.0 ? wavy(4) : scaled(wavy(4), factor)});
  }
  std::string markdown(std::size_t max_rows = 20) {
    std::ostringstream out;
    write_markdown(out, diff(reference_.write(), candidate_.write(), {}), max_rows);
    return out.str();
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

TEST_F(MarkdownReport, NamesTheFirstDivergenceAndListsWhatDiffers) {
  add("s0/m0/output/a/0", 3.0);
  add("s0/m0/output/b/0", 3.0);
  const std::string text = markdown();
  EXPECT_THAT(text, StartsWith("## TTrace: DIVERGED\n\n**First divergence:** `s0/m0/output/a/0"));
  EXPECT_THAT(text, HasSubstr("\n- **why:** "));
  EXPECT_THAT(text, HasSubstr("\n- **to do:** "));
  EXPECT_THAT(text, HasSubstr("\n|---|---:|---:|---:|---|\n| `s0/m0/output/a/0` | "));
  EXPECT_THAT(text, HasSubstr("\n| `s0/m0/output/b/0` | "));
}

TEST_F(MarkdownReport, LeavesOutMoreRowsThanWereAskedFor) {
  add("s0/m0/output/a/0", 3.0);
  add("s0/m0/output/b/0", 3.0);
  const std::string text = markdown(1);
  EXPECT_THAT(text, Not(HasSubstr("| `s0/m0/output/b/0`")));
  EXPECT_THAT(text, HasSubstr("\n... and 1 more\n"));
}

TEST_F(MarkdownReport, OfACleanRunSaysWhatWasCompared) {
  add("s0/m0/output/a/0");
  const std::string text = markdown();
  EXPECT_THAT(text, StartsWith("## TTrace: CLEAN: 1 of 1 tensor judged\n\n<details>"));
  EXPECT_THAT(text, HasSubstr("\n- **counts:** tensors 1, judged 1, within bound 1"));
}

TEST_F(MarkdownReport, SaysWhatTheVerdictDoesNotCover) {
  add("s0/m0/output/a/0");
  candidate_.not_seen(0, NotSeenKind::kUpdates, "no optimizer is attached");
  EXPECT_THAT(markdown(),
              HasSubstr("\n- **Not seen:** updates (candidate): no optimizer is attached\n"));
}

TEST_F(MarkdownReport, SentencesDoNotBecomeMarkup) {
  reference_.add(0, {"s0/m0/output/a/0", wavy(4), ElementType::kF32});
  candidate_.add(0, {"s0/m0/output/a/0", wavy(4), ElementType::kF32});
  candidate_.add(1, {"s0/m0/output/a/0", scaled(wavy(4), 2.0), ElementType::kF32});
  const std::string text = markdown();
  EXPECT_THAT(text, HasSubstr(" | replicas disagree |\n"));
  EXPECT_THAT(text, HasSubstr("in \\[0:4\\]"));
}

}  // namespace
}  // namespace ttrace
