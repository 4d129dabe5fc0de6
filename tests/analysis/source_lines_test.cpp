#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using testing::scaled;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

// A block whose norm, attention and projection are called one after the other.
const std::vector<std::string> kBlockStep = {"s0/m0/output/h.0.norm/0",
                                             "s0/m0/input/h.0.attn/0",
                                             "s0/m0/output/h.0.attn.proj/0",
                                             "s0/m0/output/h.0.attn/0",
                                             "s0/m0/input/h.0.mlp/0",
                                             "s0/m0/grad_output/h.0.attn/0",
                                             "s0/main_grad/h.0.attn.proj.weight/0"};

class SourceLinesTest : public ::testing::Test {
 protected:
  SourceLinesTest() {
    candidate_.code(1, CodeRole::kSource, "h.0.attn", "model.py:88 (Attention)")
        .code(0, CodeRole::kCall, "h.0.norm", "model.py:118")
        .code(0, CodeRole::kCall, "h.0.attn", "model.py:120")
        .code(0, CodeRole::kCall, "h.0.attn.proj", "model.py:95")
        .code(0, CodeRole::kCall, "h.0.mlp", "model.py:123")
        .code(0, CodeRole::kCall, "optimizer", "train.py:40");
  }

  // What the report names if `wrong` is the first tensor that diverges.
  std::string when_wrong(const std::string& wrong) {
    bool later = false;
    for (const std::string& id : kBlockStep) {
      reference_.add(0, {id, wavy(6)});
      later = later || id == wrong;
      candidate_.add_everywhere({id, later ? scaled(wavy(6), 3.0) : wavy(6)});
    }
    source_ = diff(reference_.write(), candidate_.write()).source;
    return source_.sentence;
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  SourceLines source_;  // of the last report
};

TEST_F(SourceLinesTest, TheFirstLineIsAPlaceThatProgramsCanOpen) {
  when_wrong("s0/m0/output/h.0.attn/0");
  EXPECT_EQ(source_.place, (CodePlace{"model.py", 88}));
}

TEST_F(SourceLinesTest, OfARegionThePlaceIsTheFirstCall) {
  when_wrong("s0/m0/input/h.0.mlp/0");
  EXPECT_EQ(source_.place, (CodePlace{"model.py", 120}));
}

TEST_F(SourceLinesTest, AnOutputConcernsTheCodeOfItsModuleAndTheCall) {
  EXPECT_EQ(when_wrong("s0/m0/output/h.0.attn/0"),
            "model.py:88 (Attention), called at model.py:120");
}

TEST_F(SourceLinesTest, AModuleOfTorchHasTheCodeAroundItAndItsCall) {
  EXPECT_EQ(when_wrong("s0/m0/output/h.0.attn.proj/0"),
            "model.py:88 (Attention), called at model.py:95");
}

TEST_F(SourceLinesTest, AnInputConcernsTheCodeBetweenTwoCalls) {
  EXPECT_EQ(when_wrong("s0/m0/input/h.0.mlp/0"),
            "the code between model.py:120, which calls h.0.attn, and model.py:123, which calls "
            "h.0.mlp");
}

TEST_F(SourceLinesTest, AGradientOfAnOutputConcernsTheBackwardOfWhatFollows) {
  EXPECT_EQ(when_wrong("s0/m0/grad_output/h.0.attn/0"),
            "backward of the code between model.py:120, which calls h.0.attn, and model.py:123, "
            "which calls h.0.mlp");
}

TEST_F(SourceLinesTest, AMainGradientConcernsItsModuleAndTheOptimizersCall) {
  EXPECT_EQ(when_wrong("s0/main_grad/h.0.attn.proj.weight/0"),
            "model.py:88 (Attention), the optimizer is called at train.py:40");
}

}  // namespace
}  // namespace ttrace
