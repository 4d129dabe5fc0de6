#include "trace/file/code_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(CodeLines, PathsThatDifferByNumbersShareAnEntryUnlessTheirCodeDiffers) {
  CodeLines lines;
  lines.add(CodeRole::kSource, "h.0.attn", "model.py:88 (Attention)");
  lines.add(CodeRole::kSource, "h.1.attn", "model.py:88 (Attention)");
  lines.add(CodeRole::kSource, "h.2.attn", "model.py:120 (Last)");
  EXPECT_THAT(lines.sources,
              ElementsAre(Pair("h.*.attn", "model.py:88 (Attention)"),
                          Pair("h.2.attn", "model.py:120 (Last)")));
  EXPECT_EQ(lines.source_of("h.1.attn"), "model.py:88 (Attention)");
  EXPECT_EQ(lines.source_of("h.2.attn"), "model.py:120 (Last)");
}

TEST(CodeLines, AModuleWithoutCodeOfItsOwnHasThatOfTheModuleAround) {
  CodeLines lines;
  lines.add(CodeRole::kSource, "h.0.attn", "model.py:88 (Attention)");
  EXPECT_EQ(lines.source_of("h.7.attn.c_proj.weight"), "model.py:88 (Attention)");
  EXPECT_EQ(lines.source_of("h.7.mlp"), "");
}

TEST(CodeLines, ACallIsThatOfThePathAlone) {
  CodeLines lines;
  lines.add(CodeRole::kCall, "h.0.attn", "model.py:120");
  EXPECT_EQ(lines.call_of("h.5.attn"), "model.py:120");
  EXPECT_EQ(lines.call_of("h.5.attn.c_proj"), "");
}

TEST(CodeLines, WhatIsKnownStays) {
  CodeLines lines;
  lines.add(CodeRole::kCall, "h.0.attn", "model.py:120");
  CodeLines others;
  others.add(CodeRole::kCall, "h.0.attn", "model.py:130");
  others.add(CodeRole::kCall, "norm", "model.py:140");
  lines.add(others);
  EXPECT_EQ(lines.call_of("h.0.attn"), "model.py:120");
  EXPECT_EQ(lines.call_of("norm"), "model.py:140");
}

}  // namespace
}  // namespace ttrace
