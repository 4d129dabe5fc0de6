#include "hooks/base/environment.h"

#include "hooks/pass_environment.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using testing::candidate_pass;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::noise_pass;
using testing::PassEnvironment;
using testing::reference_pass;
using testing::Variables;
using testing::with;

std::string complaint(const Variables& variables) {
  const PassEnvironment environment(variables);
  try {
    static_cast<void>(read_environment());
  } catch (const UsageError& error) {
    return error.message();
  }
  return "accepted";
}

TEST(EnvironmentVariables, NothingIsAskedForWithoutAPass) {
  const PassEnvironment environment(Variables{{"TTRACE_DIR", "somewhere"}});
  EXPECT_FALSE(read_environment().has_value());
}

TEST(EnvironmentVariables, DefaultsTraceIterationZero) {
  const PassEnvironment environment(reference_pass("trace"));
  const auto result = read_environment();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->directory, "trace");
  EXPECT_THAT(result->steps(), ElementsAre(0));
  EXPECT_FALSE(result->own_start);
  EXPECT_FALSE(result->raise);
  EXPECT_FALSE(result->named);
  EXPECT_FALSE(result->blocking_copies);
  EXPECT_EQ(result->ring_bytes, std::size_t{256} << 20);
}

TEST(EnvironmentVariables, StepsAreARangeOrOneNumber) {
  {
    const PassEnvironment environment(with(reference_pass("t"), "TTRACE_STEPS", "2:5"));
    EXPECT_THAT(read_environment()->steps(), ElementsAre(2, 3, 4));
  }
  const PassEnvironment environment(with(reference_pass("t"), "TTRACE_STEPS", "7"));
  EXPECT_THAT(read_environment()->steps(), ElementsAre(7));
}

TEST(EnvironmentVariables, EveryNthStepIsTraced) {
  const PassEnvironment environment(with(reference_pass("t"), "TTRACE_STEPS", "10:31:10"));
  const auto read = read_environment();
  EXPECT_THAT(read->steps(), ElementsAre(10, 20, 30));
  EXPECT_TRUE(read->traces(20));
  EXPECT_FALSE(read->traces(21));
  EXPECT_FALSE(read->traces(40));
}

TEST(EnvironmentVariables, BadValuesAreNamedWithWhatWasExpected) {
  EXPECT_THAT(complaint({{"TTRACE_PASS", "forward"}}), HasSubstr("TTRACE_PASS is 'forward'"));
  EXPECT_THAT(complaint({{"TTRACE_PASS", "candidate"}}), HasSubstr("needs TTRACE_DIR"));
  const Variables reference = reference_pass("t");
  for (const char* steps : {"3:3", "4:2", "-1", "a", "1:", ":", "1:2:0", "1:2:", "1:9:2:2"}) {
    EXPECT_THAT(complaint(with(reference, "TTRACE_STEPS", steps)), HasSubstr("TTRACE_STEPS is '"))
        << steps;
  }
  EXPECT_THAT(complaint(with(reference, "TTRACE_PRECISION", "f8")),
              HasSubstr("set it to f64, f32, bf16, f16, fp8 or fp8_f32"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_START", "mine")), HasSubstr("reference or own"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_ON_ERROR", "die")), HasSubstr("warn or raise"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_NAMED", "yes")), HasSubstr("0 or 1"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_COUNT", "all")), HasSubstr("0 or 1"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_ZOOM", "layers.0")),
              HasSubstr("'layers.0' names no module to zoom into"));
  EXPECT_THAT(complaint(with(noise_pass("r", 1), "TTRACE_COUNT", "1")),
              HasSubstr("TTRACE_COUNT=1 counts what a reference or candidate pass would write"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_FILTER", "(")), HasSubstr("regular expression"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_SYNC", "device")), HasSubstr("async or stream"));
  EXPECT_THAT(complaint(with(reference, "TTRACE_KEEP", "all")), HasSubstr("bytes or sketch"));
  for (const char* bytes : {"4095", "-1", "1M"}) {
    EXPECT_THAT(complaint(with(reference, "TTRACE_RING_BYTES", bytes)),
                HasSubstr("TTRACE_RING_BYTES is '"))
        << bytes;
  }
}

TEST(EnvironmentVariables, WhereElementsAreNeededNoSketchIsKept) {
  const auto kept = [](const Variables& variables) {
    const PassEnvironment environment(with(variables, "TTRACE_KEEP", "sketch"));
    return read_environment()->keeping.of("s0/m0/output/layers.0/0");
  };
  EXPECT_EQ(kept(reference_pass("t")), Keep::kSketch);
  EXPECT_EQ(kept(with(reference_pass("t"), "TTRACE_ZOOM", "s0/m0/layers.0")), Keep::kBytes);
  EXPECT_EQ(kept(with(reference_pass("t"), "TTRACE_ELEMENTS", "layers\\.0")), Keep::kBytes);
  EXPECT_EQ(kept(with(reference_pass("t"), "TTRACE_ELEMENTS", "layers\\.1")), Keep::kSketch);
}

// Operators of programs in F16 were not checked: `ttrace check` runs the reference once more in the
// candidate's precision, and that pass failed with "TTRACE_PRECISION='f16' is not understood".
TEST(EnvironmentVariables, EveryPrecisionThatAProgramCanHaveIsUnderstood) {
  for (const char* precision : {"f64", "f32", "bf16", "f16", "fp8", "fp8_f32"}) {
    const PassEnvironment environment(with(reference_pass("t"), "TTRACE_PRECISION", precision));
    EXPECT_EQ(read_environment()->precision, precision);
  }
}

TEST(EnvironmentVariables, NoisePassesNeedAReferenceAndASeed) {
  EXPECT_THAT(complaint({{"TTRACE_PASS", "noise"}}), HasSubstr("needs TTRACE_REFERENCE"));
  for (const char* seed : {"", "-1", "x"}) {
    EXPECT_THAT(complaint(with(noise_pass("t", 1), "TTRACE_NOISE_SEED", seed)),
                HasSubstr("TTRACE_NOISE_SEED"))
        << seed;
  }
  for (const int seed : {0, 3}) {
    const PassEnvironment environment(noise_pass("t", seed));
    EXPECT_EQ(read_environment()->noise_seed, seed);
  }
}

TEST(EnvironmentVariables, FilterIsSearchedForInIds) {
  const PassEnvironment environment(with(reference_pass("t"), "TTRACE_FILTER", "grad_.*fc1"));
  const auto result = read_environment();
  EXPECT_TRUE(result->wants("s0/m0/grad_output/mlp.fc1/0"));
  EXPECT_FALSE(result->wants("s0/m0/output/mlp.fc1/0"));
}

}  // namespace
}  // namespace ttrace
