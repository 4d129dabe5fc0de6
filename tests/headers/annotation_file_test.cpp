// The annotation file that the head of <ttrace/annotations.h> shows.
#include <ttrace/annotations.h>

#include <gtest/gtest.h>

namespace ttrace {
namespace {

constexpr const char* kAnnotationFile =
#include "annotation_file.inc"
    ;

TEST(AnnotationFile, ShownInTheHeaderPlacesWhatItSaysItPlaces) {
  const Annotations annotations = Annotations::parse(kAnnotationFile);
  EXPECT_EQ(annotations.sizes().at("v"), 257);
  const auto dims = [&](Kind kind, const std::string& path, int slot) {
    const auto found = annotations.find(kind, path, slot);
    return found ? to_string(*found) : "whole";
  };
  const std::string words = "embedding.word_embeddings.weight";
  EXPECT_EQ(dims(Kind::kParam, words, 0), "v[tp] h");
  EXPECT_EQ(dims(Kind::kParamGrad, words, 0), "v[tp] h");
  const std::string attention = "decoder.layers.3.self_attention.core_attention";
  EXPECT_EQ(dims(Kind::kOutput, attention, 0), "s b a[tp]");
  EXPECT_EQ(dims(Kind::kInput, attention, 0), "s b n[tp] d");
  EXPECT_EQ(dims(Kind::kRouting, attention, 1), "s b");
  EXPECT_EQ(dims(Kind::kScale, attention, 1), "r k");
  EXPECT_EQ(dims(Kind::kOperand, attention, 0), "s b n[tp] d");
  EXPECT_EQ(dims(Kind::kOutput, "decoder.final_layernorm", 0), "whole");
}

}  // namespace
}  // namespace ttrace
