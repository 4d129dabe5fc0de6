#include <ttrace/error.h>
#include <ttrace/tensor_id.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;

TEST(TensorId, PrintsAsTheFormatSays) {
  TensorId id{0, 3, Kind::kOutput, "decoder.layers.2.mlp.linear_fc2"};
  EXPECT_EQ(to_string(id), "s0/m3/output/decoder.layers.2.mlp.linear_fc2/0");
  id.call = 1;
  EXPECT_EQ(to_string(id), "s0/m3/output/decoder.layers.2.mlp.linear_fc2/0#1");
  id.slot = 2;
  id.recompute = true;
  EXPECT_EQ(to_string(id), "s0/m3/output/decoder.layers.2.mlp.linear_fc2/2#1~");
  EXPECT_EQ(to_string({0, kNoMicrobatch, Kind::kMainGrad, "decoder.final_layernorm.weight"}),
            "s0/main_grad/decoder.final_layernorm.weight/0");
}

TEST(TensorId, EveryKindAndFormRoundTrips) {
  for (std::size_t number = 0; number <= static_cast<std::size_t>(Kind::kStateBefore); ++number) {
    const auto kind = static_cast<Kind>(number);
    EXPECT_EQ(parse_kind(name_of(kind)), kind);
    for (const std::int64_t microbatch : {kNoMicrobatch, std::int64_t{0}, std::int64_t{41}}) {
      for (const int call : {0, 3}) {
        for (const bool recompute : {false, true}) {
          const TensorId id{120, microbatch, kind, "a.B_1.c-d", 7, call, recompute};
          EXPECT_EQ(parse_tensor_id(to_string(id)), id) << to_string(id);
        }
      }
    }
  }
}

TEST(TensorId, OrdersByStepThenMicrobatch) {
  const TensorId first{0, 1, Kind::kReceived, "z"};
  const TensorId second{0, 2, Kind::kData, "a"};
  const TensorId third{1, 0, Kind::kData, "a"};
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
}

TEST(TensorId, RefusesTextThatIsNoIdAndQuotesIt) {
  const std::vector<std::string> wrong = {
      "",
      "s0",
      "s0/output",
      "s0/output/a",
      "0/output/a/0",
      "s/output/a/0",
      "s-1/output/a/0",
      "s+1/output/a/0",
      "s01/output/a/0",
      "s0/m/output/a/0",
      "s0/m01/output/a/0",
      "s0/m1/m2/output/a/0",
      "s0/outputs/a/0",
      "s0/output//0",
      "s0/output/a..b/0",
      "s0/output/a.b./0",
      "s0/output/a b/0",
      "s0/output/a/",
      "s0/output/a/x",
      "s0/output/a/0#",
      "s0/output/a/0#0",
      "s0/output/a/0~#1",
      "s0/output/a/0~~",
      "s0/output/a/0/1",
      "s0/output/a/99999999999",
      "s99999999999999999999/output/a/0",
      " s0/output/a/0",
      "s0/output/a/0 ",
  };
  for (const std::string& text : wrong) {
    try {
      (void)parse_tensor_id(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(), HasSubstr("\"" + text + "\""));
      EXPECT_THAT(error.message(), HasSubstr("it needs "));
    }
  }
}

TEST(TensorId, ErrorNamesThePartThatIsWrong) {
  try {
    (void)parse_tensor_id("s0/m1/outptu/decoder/0");
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_THAT(error.message(), HasSubstr("a kind"));
    EXPECT_THAT(error.message(), HasSubstr("\"outptu\""));
  }
  EXPECT_THROW((void)parse_kind("Output"), FormatError);
}

TEST(TensorId, CanonicalPathsHaveNonEmptyPartsOfPlainCharacters) {
  for (const char* path : {"a", "decoder.layers.0.mlp", "a-b_C.9"}) {
    EXPECT_TRUE(is_canonical_path(path)) << path;
  }
  for (const char* path : {"", ".", "a.", ".a", "a..b", "a/b", "a b", "a*", "\xc3\xa4"}) {
    EXPECT_FALSE(is_canonical_path(path)) << path;
  }
}

}  // namespace
}  // namespace ttrace
