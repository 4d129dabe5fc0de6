#include "reference/data.h"

#include "reference/digest.h"
#include "small_run.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <vector>

namespace ttrace::testing {
namespace {

using reference::ByteCorpus;
using reference::Config;
using reference::Samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The samples of small_config() cut to 4 tokens, from the text of write_text().
class Corpus : public ::testing::Test {
 protected:
  Corpus() : config_(small_config()) {
    config_.data.file = folder_ / "text";
    config_.model.sequence = 4;
    write_text(config_.data.file);
  }
  [[nodiscard]] Samples samples(std::uint64_t seed, std::int64_t step, std::int64_t microbatch) {
    config_.data.seed = seed;
    return ByteCorpus(config_.data, config_.model).samples(step, microbatch);
  }
  TemporaryDirectory folder_;
  Config config_;
};

std::vector<std::int64_t> row(const at::Tensor& tensor, std::int64_t b) {
  const at::Tensor values = tensor.select(0, b).contiguous();
  const auto* data = values.const_data_ptr<std::int64_t>();
  return {data, data + values.numel()};
}

TEST(SplitMix64, StartsAsPublished) {
  EXPECT_EQ(reference::splitmix64(0), 0xE220A8397B1DCDAFU);
}

// Offsets 83, 217, 743, 985, 256 and 444, computed by a separate program.
TEST_F(Corpus, GivesTheSamplesOfItsFormula) {
  EXPECT_THAT(row(samples(1, 0, 0).labels, 0), ElementsAre(72, 79, 86, 93));
  EXPECT_THAT(row(samples(1, 0, 0).labels, 1), ElementsAre(242, 249, 0, 7));
  EXPECT_THAT(row(samples(1, 2, 3).labels, 0), ElementsAre(84, 91, 98, 105));
  EXPECT_THAT(row(samples(1, 2, 3).labels, 1), ElementsAre(242, 249, 0, 7));
}

// Prompts of 1, 1, 4 and 3 tokens (of at most 4), computed by a separate program.
TEST_F(Corpus, PromptsOfDrawnLengthsDoNotCount) {
  config_.model.sequence = 8;
  config_.data.micro_batch_size = 4;
  EXPECT_TRUE(samples(1, 0, 0).counts.all().item<bool>());
  config_.data.masked = reference::Masked::kPrompt;
  const Samples drawn = samples(1, 0, 0);
  EXPECT_TRUE(drawn.counts.equal(
      at::arange(8, at::kLong).ge(at::tensor({1, 1, 4, 3}, at::kLong).unsqueeze(1))));
  config_.data.masked = reference::Masked::kNone;
  EXPECT_TRUE(drawn.tokens.equal(samples(1, 0, 0).tokens));
}

// Offset 815, documents of 3, 2, 3 and of 3, 5 tokens, computed by a separate program.
TEST_F(Corpus, PackedDocumentsBeginAnewAndDoNotCountTheirLastToken) {
  config_.model.sequence = 8;
  const Samples plain = samples(1, 0, 0);
  EXPECT_THAT(row(plain.positions, 1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(row(plain.documents, 1), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  config_.data.documents = reference::Documents::kPacked;
  const Samples drawn = samples(1, 0, 0);
  EXPECT_THAT(row(drawn.positions, 0), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_THAT(row(drawn.documents, 0), ElementsAre(0, 0, 0, 1, 1, 2, 2, 2));
  EXPECT_THAT(row(drawn.tokens, 0), ElementsAre(256, 76, 83, 256, 97, 256, 111, 118));
  EXPECT_THAT(row(drawn.labels, 0), ElementsAre(76, 83, 256, 97, 256, 111, 118, 256));
  EXPECT_THAT(row(drawn.counts.to(at::kLong), 0), ElementsAre(1, 1, 0, 1, 0, 1, 1, 0));
  EXPECT_THAT(row(drawn.documents, 1), ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
}

TEST_F(Corpus, PackedDocumentsFillSamplesOfAnyLength) {
  config_.data.documents = reference::Documents::kPacked;
  for (const std::int64_t sequence : {4, 5, 7, 50}) {
    config_.model.sequence = sequence;
    for (std::int64_t step = 0; step < 20; ++step) {
      const Samples drawn = samples(3, step, 0);
      const at::Tensor ends = drawn.labels.eq(256);
      EXPECT_TRUE(ends.select(1, sequence - 1).all().item<bool>());
      EXPECT_TRUE(ends.equal(drawn.counts.logical_not()));
      // Two tokens or more: no document ends where it begins.
      EXPECT_FALSE(ends.logical_and(drawn.tokens.eq(256)).any().item<bool>());
    }
  }
}

TEST_F(Corpus, ReorderedSamplesKeepTheirPartsTogether) {
  config_.data.masked = reference::Masked::kPrompt;
  config_.data.documents = reference::Documents::kPacked;
  config_.model.sequence = 16;
  const Samples drawn = samples(1, 0, 1);
  const Samples turned = reordered(drawn, at::tensor({1, 0}, at::kLong));
  EXPECT_TRUE(turned.tokens[0].equal(drawn.tokens[1]));
  EXPECT_TRUE(turned.labels[0].equal(drawn.labels[1]));
  EXPECT_TRUE(turned.counts[1].equal(drawn.counts[0]));
  EXPECT_TRUE(turned.positions[0].equal(drawn.positions[1]));
  EXPECT_TRUE(turned.documents[1].equal(drawn.documents[0]));
}

TEST_F(Corpus, WrapsAroundForTheLargestSeed) {
  EXPECT_THAT(row(samples(~std::uint64_t{0}, 0, 1).labels, 0), ElementsAre(3, 10, 17, 24));
  EXPECT_THAT(row(samples(~std::uint64_t{0}, 0, 1).labels, 1), ElementsAre(39, 46, 53, 60));
}

TEST_F(Corpus, TokensAreTheLabelsOnePositionLaterBehindTheBeginToken) {
  const Samples drawn = samples(1, 0, 0);
  EXPECT_THAT(row(drawn.tokens, 0), ElementsAre(256, 72, 79, 86));
  EXPECT_THAT(row(drawn.tokens, 1), ElementsAre(256, 242, 249, 0));
}

TEST_F(Corpus, ShortestPossibleTextHasOneSample) {
  write_text(config_.data.file, 5);
  EXPECT_THAT(row(samples(7, 0, 0).labels, 1), ElementsAre(3, 10, 17, 24));
}

TEST_F(Corpus, TextAsLongAsASampleIsRefusedWithBothSizes) {
  write_text(config_.data.file, 4);
  try {
    ByteCorpus(config_.data, config_.model);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("has 4 bytes; a sample of model.sequence 4"));
  }
}

TEST_F(Corpus, MissingTextIsNamed) {
  config_.data.file = folder_ / "absent";
  try {
    ByteCorpus(config_.data, config_.model);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("cannot read the text " + config_.data.file));
  }
}

TEST_F(Corpus, DigestIsThatOfItsBytes) {
  reference::Digest in_two_parts;
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text.push_back(static_cast<char>((7 * i + 3) % 256));
  }
  in_two_parts.add(text.data(), 300);
  in_two_parts.add(text.data() + 300, 700);
  EXPECT_EQ(ByteCorpus(config_.data, config_.model).digest(), in_two_parts.text());
}

TEST(Digest, OfNothingIsXxh3sPublishedValue) {
  EXPECT_EQ(reference::Digest().text(), "2d06800538d394c2");
}

}  // namespace
}  // namespace ttrace::testing
