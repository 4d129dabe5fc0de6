// Modules that one side alone has.
#include "analysis/checks/own_modules.h"

#include "analysis/diff.h"
#include "support/temporary_directory.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

class OwnModulesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    both("s0/param/attention.out.weight/0");
    both("s0/m0/output/attention.out/0");
  }
  void both(const std::string& id) {
    reference_.add(0, {id, wavy(8)});
    candidate_.add(0, {id, wavy(8)});
  }
  Report compare() { return diff(reference_.write(), candidate_.write()); }

  testing::TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate"};
};

// Symptom: a wrapper around attention that only the candidate has was a divergence, with "replicas
// diverge: ... all of them are within the bound of the reference" as its cause.
TEST_F(OwnModulesTest, AModuleWithoutParametersIsOneNote) {
  candidate_.add(0, {"s0/m0/input/attention.local/0", wavy(8)});
  candidate_.add(0, {"s0/m0/output/attention.local/0", wavy(8)});
  const Report report = compare();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().not_judged, 2U);
  EXPECT_THAT(report.notes,
              Contains(HasSubstr("candidate: it alone has the module attention.local, so 2 tensors "
                                 "are not compared")));
}

TEST_F(OwnModulesTest, AModuleThatDoesNotRunStaysAFindingIfItHasParameters) {
  both("s0/param/attention.local.weight/0");
  reference_.add(0, {"s0/m0/output/attention.local/0", wavy(8)});
  EXPECT_TRUE(compare().diverged());
}

TEST_F(OwnModulesTest, AGradientThatDoesNotArriveStaysAFinding) {
  both("s0/m0/output/attention.local/0");
  reference_.add(0, {"s0/m0/grad_output/attention.local/0", wavy(8)});
  EXPECT_TRUE(compare().diverged());
}

TEST_F(OwnModulesTest, WhatTheProgramDeclaresIsLeftToThat) {
  reference_.manifest.untraced = {"local/"};
  candidate_.add(0, {"s0/m0/output/attention.local/0", wavy(8)});
  const Report report = compare();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().allowed_missing, 1U);
}

TEST_F(OwnModulesTest, WithoutAnyCommonModuleNothingIsExcused) {
  testing::TemporaryDirectory folder;
  TraceBuilder left{folder / "reference", "reference"};
  TraceBuilder right{folder / "candidate", "candidate"};
  left.add(0, {"s0/param/fc.weight/0", wavy(8)}).add(0, {"s0/m0/output/one/0", wavy(8)});
  right.add(0, {"s0/param/fc.weight/0", wavy(8)}).add(0, {"s0/m0/output/other/0", wavy(8)});
  EXPECT_TRUE(diff(left.write(), right.write()).diverged());
}

}  // namespace
}  // namespace ttrace
